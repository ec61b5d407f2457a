"""The engine: look-ahead, meta-gradients, the loop over steps."""
