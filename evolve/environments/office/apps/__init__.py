"""The six apps (and `task`, which ends an episode): one file each, one function per endpoint."""
