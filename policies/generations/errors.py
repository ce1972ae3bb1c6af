"""Errors of generations, all of them `PolicyRefused`: trying again cannot help.

PolicyRefused
├── AdapterRefused        an adapter may not be served
├── CanaryFailed          a served adapter does not compute what it should
├── UnknownGeneration     the engine does not serve that version (now)
└── WrongState            the registry does not allow this step
"""

from __future__ import annotations

from policies.errors import PolicyRefused


class AdapterRefused(PolicyRefused):
    """The adapter's directory may not be served."""


class CanaryFailed(PolicyRefused):
    """What is served differs from the reference, or not from the base."""


class UnknownGeneration(PolicyRefused):
    """The engine does not serve this version."""


class WrongState(PolicyRefused):
    """The registry refuses this step."""
