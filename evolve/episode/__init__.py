"""One episode: what the agent is shown, what it does, and what can be said of it afterwards."""
