"""The loop: an agent works through tasks, and what it learns is kept, gated and rolled back."""

from evolve.shadow import refuse_shadowed_packages

refuse_shadowed_packages()

__all__: list[str] = []
