"""What an episode is worth beyond its task's own grade. Each file names formula, assumption and source."""
