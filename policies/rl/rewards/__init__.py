"""Rewards of an episode beyond its task's own grade. Each file names formula, assumption and source."""
