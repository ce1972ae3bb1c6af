"""Modes of a run over its tasks: online, offline (epochs), frozen, or over what waits in quarantine."""
