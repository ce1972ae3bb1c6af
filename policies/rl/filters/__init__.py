"""Filter a batch's trajectories for training. Each file names formula, assumption and source."""
