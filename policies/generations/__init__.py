"""Generations of a policy: LoRA adapters of one base model, numbered, checked, served by version, rolled back."""
