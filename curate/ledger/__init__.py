"""What a run writes down: ledger, manifest, metrics; the pruning rule."""
