"""Policies: chat models, served models, the pocket model, and how they are trained."""
