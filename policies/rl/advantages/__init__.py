"""Advantage of each step over what it is compared with. Each file names formula, assumption and source."""
