"""Playbooks as files of others: a module per format, each with `dump(items) -> str` and `load(text) -> list[Entry]`."""
