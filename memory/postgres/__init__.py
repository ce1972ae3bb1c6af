"""A workspace in PostgreSQL, for teams whose machines share one (extra `postgres`)."""
