"""A page that shows a run: what was kept, why, what it looks like, and what to do next."""
