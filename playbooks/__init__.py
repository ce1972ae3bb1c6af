"""What was learned, as text: playbook bullets, their deltas, reflection, curation and rendering."""
