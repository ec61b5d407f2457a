"""Index and manifest to curated shards: plan, copy byte for byte, mark as finished, verify, export for other tools."""
