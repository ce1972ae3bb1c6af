"""Solved tasks as earlier turns of a conversation: which a task is shown, and what a batch proposes."""
