"""Learned knowledge as text: playbook bullets, their deltas, reflection, curation and rendering."""
