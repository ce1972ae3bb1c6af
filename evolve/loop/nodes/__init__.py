"""The steps of the loop's graph: act, reflect, curate, gate, commit."""
