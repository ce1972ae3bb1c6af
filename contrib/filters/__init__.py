"""Which trajectories of a batch are trained on. Tried in no training of ours yet."""
