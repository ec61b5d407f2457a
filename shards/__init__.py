"""WebDataset shards as files and names: index, stream, pack, rewrite, verify. Knows no learning and no torch."""
