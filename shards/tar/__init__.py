"""The tar format: parse header blocks, walk all members of a (damaged) tar, write one. No samples, no keys."""
