"""The Visual Decathlon: annotations, images, results."""
