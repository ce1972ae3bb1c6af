"""Arms: what an episode is for, and so which figures it counts in."""

MAIN = "main"
NO_MEMORY = "no_memory"
AA = "aa"
ATTEMPT = "attempt"
"""Further attempts at tasks of the stream: in none of its figures."""
FROZEN = "frozen"
"""A session's episodes that nothing was to be learned from."""
