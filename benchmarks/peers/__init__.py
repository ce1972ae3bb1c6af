"""Peers in the same ring: other frameworks, unchanged, on the same server, the same tasks and the same grader."""
