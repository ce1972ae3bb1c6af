"""Weights for tokens that another policy than the trainer's drew. Each file names formula, assumption and source."""
