"""Vector indexes, one per file, behind `memory.protocols.Index`."""
