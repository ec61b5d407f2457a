"""The Visual Decathlon: read its annotations, pack it as store and targets, write predictions in its results format."""
