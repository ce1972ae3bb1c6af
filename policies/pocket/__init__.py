"""Training of the pocket model: a few million parameters, from scratch, on text the repository generates."""
