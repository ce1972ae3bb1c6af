"""How many rollouts each prompt of a batch gets. Tried in no training of ours yet."""
