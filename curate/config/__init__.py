"""The configuration of a run, and the defaults of its options."""
