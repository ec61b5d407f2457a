"""Runs: a folder claimed, prepared, trained epoch by epoch, resumed."""
