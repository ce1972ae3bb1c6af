"""Generations of the policy in a workspace: which adapter answers, and how it is reached."""
