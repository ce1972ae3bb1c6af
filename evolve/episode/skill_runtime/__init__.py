"""Skills at work: what an episode is shown of them, how they are defined in it, and what the agent does with them."""
