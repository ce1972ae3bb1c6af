"""Sandboxes for model-written Python: `monty` (default) and `process` (real CPython, weaker)."""
