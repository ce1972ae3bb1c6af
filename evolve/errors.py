"""Errors of the loop.

EvolveError
├── EnvironmentFailure (RuntimeError)   the world broke, not the agent: the episode is not graded
├── UserCodeError (RuntimeError)        code that the user brought raised, or broke its contract: the run stops
├── ConfigError (ValueError)            evolve.toml, an EVOLVE_ variable or a name in them is wrong
├── RunMismatch (ValueError)            a run cannot be resumed as it was started
├── WorkerLost (RuntimeError)           workers of a cluster died again and again on one episode: the run stops
└── WorkspaceClosed (RuntimeError)      a workspace is used after it was closed, or before it was opened
"""

from __future__ import annotations

from memory.errors import EvolveError


class EnvironmentFailure(EvolveError, RuntimeError):
    """The environment itself failed. What the agent did wrong is an observation, never this."""


class UserCodeError(EvolveError, RuntimeError):
    """Code that the user brought raised something unexpected, or returned something else than its contract says.

    The message names file and line (`evolve.usercode`). The run is stopped and can be resumed.
    """

    resume: str = ""
    """How to go on after the mend; set by what was stopped."""


class ConfigError(EvolveError, ValueError):
    """The configuration was refused."""


class RunMismatch(EvolveError, ValueError):
    """The run that should be resumed was started with other tasks or settings."""


class WorkerLost(EvolveError, RuntimeError):
    """The workers that were given an episode died. The run is stopped and can be resumed."""


class WorkspaceClosed(EvolveError, RuntimeError):
    """The workspace is closed."""
