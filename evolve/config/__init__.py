"""Configuration: its sections, the file they are read from, and the presets."""
