"""Worlds an agent can work in: one file or folder each."""
