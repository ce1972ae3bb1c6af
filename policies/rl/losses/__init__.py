"""Losses to minimise, per token. Each file names formula, assumption and source."""
