"""Advantage of each step over what it is compared with. Tried in no training of ours yet."""
