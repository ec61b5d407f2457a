"""From an index and a manifest to curated shards, and the proof that they are right."""
