"""A workspace in a SQLite file: the default."""
