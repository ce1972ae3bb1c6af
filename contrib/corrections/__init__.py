"""Weights for tokens that another policy than the trainer's drew. Tried in no training of ours yet."""
