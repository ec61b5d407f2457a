"""Scoring a network on the target: logistic regression and fine-tuning."""
