"""Shards to samples: scan every tar into index rows, report faults, read members, check for drift."""
