"""Whole experiments, each one call: data, runs, scores, tables and figures."""
