"""Policy of each role. A role without a model of its own is the acting one's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from policies.protocols import Message, Policy, Reply, SamplingParams
from policies.wrapped import WrappedPolicy

Role = Literal["reflector", "curator", "judge", "teacher"]
"""What a policy may be asked for beside doing the tasks."""
ROLES: tuple[Role, ...] = get_args(Role)
ACTING = "acting"
"""The role of whoever does the tasks."""


@dataclass(frozen=True)
class Policies:
    """One policy for each role; several roles may hold the same object."""

    acting: Policy
    reflector: Policy
    curator: Policy
    judge: Policy
    teacher: Policy

    @classmethod
    def of(cls, acting: Policy, **own: Policy) -> Policies:
        """Return `acting` in every role that `own` does not name."""
        return cls(**{ACTING: acting, **dict.fromkeys(ROLES, acting), **own})

    @property
    def distinct(self) -> list[Policy]:
        """Return every object once, the acting one first."""
        return list({id(p): p for p in (getattr(self, role) for role in (ACTING, *ROLES))}.values())

    def each(self, change: Callable[[str, Policy], Policy]) -> Policies:
        """Return the policies with `change(role, policy)` in the place of each."""
        return Policies(**{role: change(role, getattr(self, role)) for role in (ACTING, *ROLES)})


def as_set(params: SamplingParams, temperature: float | None, max_tokens: int | None) -> SamplingParams:
    """Return how a role with these settings samples; None = as it is asked for."""
    given = {"temperature": temperature, "max_tokens": max_tokens}
    return params.model_copy(update={name: value for name, value in given.items() if value is not None})


class SampledPolicy(WrappedPolicy):
    """A policy that samples as its own settings say, whatever it is asked for. None = as it is asked for."""

    def __init__(self, policy: Policy, temperature: float | None, max_tokens: int | None) -> None:
        super().__init__(policy)
        self._temperature, self._max_tokens = temperature, max_tokens

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return the inner policy's reply. Raises what it raises."""
        return await super().generate(messages, as_set(params, self._temperature, self._max_tokens))
