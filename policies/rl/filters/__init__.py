"""Which trajectories of a batch are trained on. Each file names formula, assumption and source."""
