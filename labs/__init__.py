"""Code run in a clone alone: it is in no wheel."""
