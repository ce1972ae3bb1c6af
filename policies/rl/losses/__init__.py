"""What is minimised, per token. Each file names formula, assumption and source."""
