"""Embedders, one per file: text in, unit vectors out."""
