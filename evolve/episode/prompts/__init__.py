"""Prompts, one file each, filled by `policies.templates.render`."""
