"""Filter a batch's trajectories for training. Tried in no training of ours yet."""
