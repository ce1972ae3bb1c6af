"""The loop over tasks: generate, reflect, curate, gate, commit; runs, their modes and their reports."""
