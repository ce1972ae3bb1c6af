"""Errors of the loop.

EvolveError
├── EnvironmentFailure (RuntimeError)   the world broke, not the agent: the episode is not graded
├── ConfigError (ValueError)            evolve.toml, an EVOLVE_ variable or a name in them is wrong
└── RunMismatch (ValueError)            a run cannot be resumed as it was started
"""

from __future__ import annotations

from memory.errors import EvolveError


class EnvironmentFailure(EvolveError, RuntimeError):
    """The environment itself failed. What the agent did wrong is an observation, never this."""


class ConfigError(EvolveError, ValueError):
    """The configuration was refused."""


class RunMismatch(EvolveError, ValueError):
    """The run that should be resumed was started with other tasks or settings."""
