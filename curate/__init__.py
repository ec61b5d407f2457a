"""Learn how much each image of a store helps a target task, and keep what helps."""

__version__ = "0.2.0"
