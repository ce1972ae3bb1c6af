"""Errors of the acting floor.

PolicyError (EvolveError, RuntimeError)
├── PolicyUnavailable     server dead, no route, time-out after the last retry
├── PolicyRefused         bad key, unknown model, request too long: retrying cannot help
└── BudgetExceeded        calls, tokens, money or wall time ran out; the run can be resumed
"""

from __future__ import annotations

from memory.errors import EvolveError


class PolicyError(EvolveError, RuntimeError):
    """The policy could not answer."""


class PolicyUnavailable(PolicyError):
    """The backend could not be reached."""


class PolicyRefused(PolicyError):
    """The backend refused the request; retrying cannot help."""


class BudgetExceeded(PolicyError):
    """A budget ran out."""
