"""Trackers of experiments that the figures of a training can be handed to. Each file sends to one of them."""
