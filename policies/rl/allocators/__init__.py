"""Allocate rollouts to the prompts of a batch. Each file names formula, assumption and source."""
