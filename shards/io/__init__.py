"""Files, folders and URLs: atomic writes, locks, opened shards, images, Parquet, the parallel map."""
