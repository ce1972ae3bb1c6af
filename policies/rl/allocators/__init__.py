"""How many rollouts each prompt of a batch gets. Each file names formula, assumption and source."""
