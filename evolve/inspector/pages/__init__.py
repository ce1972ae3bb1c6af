"""One page, one file: what it reads, and what its buttons do."""
