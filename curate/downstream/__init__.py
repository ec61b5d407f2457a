"""How good a trained network is for the target: features, then a protocol that scores them."""
