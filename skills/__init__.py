"""Learned knowledge as code: the sandbox that runs model-written Python, and the skill library."""
