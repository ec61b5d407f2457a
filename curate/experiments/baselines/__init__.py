"""Curated against raw and random of equal size."""
