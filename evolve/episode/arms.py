"""Arms: what an episode is for, and so which figures it counts in."""

MAIN = "main"
NO_MEMORY = "no_memory"
AA = "aa"
ATTEMPT = "attempt"
"""Further attempts at tasks of the stream: in none of its figures."""
TEACHER = "teacher"
"""Further attempts that the teacher made in place of the agent: in none of the figures."""
FURTHER = (ATTEMPT, TEACHER)
GOLD = "gold"
"""The environment's own solutions of tasks that no attempt solved: in none of the figures."""
FROZEN = "frozen"
"""A session's episodes that nothing was to be learned from."""
