"""What is minimised, per token. Tried in no training of ours yet."""
