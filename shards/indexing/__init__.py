"""From the members of tars to the index: one row a sample, and what is odd about it."""
