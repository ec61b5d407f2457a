"""Choosing images without training: features by an encoder, and selectors over them."""
