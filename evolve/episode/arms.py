"""Arms: what an episode is for, and so which figures it counts in."""

MAIN = "main"
NO_MEMORY = "no_memory"
AA = "aa"
ATTEMPT = "attempt"
"""Further attempts at tasks of the stream: in none of its figures."""
TEACHER = "teacher"
"""Further attempts that the teacher made in place of the agent: in none of the figures."""
FURTHER = (ATTEMPT, TEACHER)
"""What a failed task is tried again in, sampled."""
GOLD = "gold"
"""The environment's own solutions of tasks that no attempt solved: in none of the figures."""
SHOWN_HOW = (TEACHER, GOLD)
"""What the agent did not do itself, and may learn from as from an expert."""
FROZEN = "frozen"
"""A session's episodes that nothing was to be learned from."""
