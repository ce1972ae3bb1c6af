"""Losses to minimise, per token. Tried in no training of ours yet."""
