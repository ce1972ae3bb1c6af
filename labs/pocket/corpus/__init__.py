"""Writes the text the pocket model is trained on: acting, reflecting and curating in offices nobody else uses.

`python -m labs.pocket.corpus OUT.npz` runs a scripted expert with gaps in its knowledge through freshly drawn
deployments (seeds 1,000 to 99,999 only) and renders what it did with the same functions that the live loop uses.
"""
