"""Errors of the acting floor.

PolicyError (EvolveError, RuntimeError)
├── PolicyUnavailable     server dead, no route, time-out after the last retry
├── PolicyRefused         bad key, unknown model, request too long: retrying cannot help
├── BudgetExceeded        calls, tokens, money or wall time ran out; the run can be resumed
└── OutputUnparsable      no schema-valid output after repair and one re-ask; carries the raw text
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


class OutputUnparsable(PolicyError):
    """Structured output could not be recovered."""

    def __init__(self, message: str, raw: str = "") -> None:
        super().__init__(message)
        self.raw = raw

    def __reduce__(self) -> tuple[type[OutputUnparsable], tuple[str, str]]:
        return (type(self), (str(self), self.raw))
