"""Compares ways of learning: the same tasks and seeds, taken in turns, judged by paired statistics."""
