"""Comparing methods: score tables, Friedman's test, diagrams, plots."""
