"""Advice before the bill: what a store holds of a target's kind, a small pilot, hours, and one plain sentence."""
