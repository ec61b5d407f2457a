"""Folders of images and known data sets to shards: an unlabelled store, a labelled target. Nothing is resized."""
