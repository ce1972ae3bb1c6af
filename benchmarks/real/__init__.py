"""Real models on real tasks: weights that nobody here trained, benchmarks that nobody here wrote."""
