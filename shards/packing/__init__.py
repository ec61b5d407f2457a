"""From folders and data sets to shards."""
