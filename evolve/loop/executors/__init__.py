"""Where episodes are done, other than in this process: a file each."""
