"""Errors of the acting floor.

PolicyError (EvolveError, RuntimeError)
├── PolicyUnavailable     server dead, no route
│   └── TimedOut          no whole answer in time, of a server that may be well
├── PolicyRefused         bad key, unknown model, request too long: retrying cannot help
└── BudgetExceeded        calls, tokens, money or wall time ran out; the run can be resumed
"""

from __future__ import annotations

from memory.errors import EvolveError


class PolicyError(EvolveError, RuntimeError):
    """The policy could not answer."""


class PolicyUnavailable(PolicyError):
    """The backend could not be reached."""


class TimedOut(PolicyUnavailable):
    """No whole answer within `timeout_s`: the server may be well, and slower than that."""


class PolicyRefused(PolicyError):
    """The backend refused the request; retrying cannot help."""


class BudgetExceeded(PolicyError):
    """A budget ran out."""
