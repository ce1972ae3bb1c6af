"""Gates: what a learned change must pass before it is kept, and what their trials are made of."""
