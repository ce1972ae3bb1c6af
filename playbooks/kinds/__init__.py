"""Kinds of knowledge, one file or folder each: what a record of the kind holds, and what of it is read."""
