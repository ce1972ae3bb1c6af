"""Executors of episodes outside this process, a file each."""
