"""Allocate rollouts to the prompts of a batch. Tried in no training of ours yet."""
