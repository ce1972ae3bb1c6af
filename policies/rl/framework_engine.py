"""The engines of a framework that trains: it serves the weights that it trains, and moves them there itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from policies.errors import PolicyRefused
from policies.protocols import SamplingParams

OURS = frozenset({"temperature", "top_p", "max_tokens", "stop", "seed", "logprobs"})
"""Sampling parameters that a rollout says; what else a framework tells is passed on."""


class FrameworkEngine:
    """What such engines share of `policies.generations.engine.AdapterEngine`: all but `sample`.

    A version can be neither loaded nor named. One object answers one conversation after another of one member, so that
    the framework can keep it on one server.
    """

    framework = ""

    def __init__(self, context: int, told: Mapping[str, Any]) -> None:
        """Take how many tokens prompt and completion may have together, and how the framework says to sample."""
        self._context, self._told = context, told

    def asked(self, params: SamplingParams, version: str | None) -> dict[str, Any]:
        """Return the sampling parameters of a request. Raises `PolicyRefused` for a version."""
        if version is not None:
            raise PolicyRefused(f"got version {version!r}; {self.framework} serves what it trains, expected none")
        asked = {name: value for name, value in self._told.items() if name not in OURS}
        asked |= {"temperature": params.temperature, "top_p": params.top_p, "max_tokens": params.max_tokens}
        stop = [*(self._told.get("stop") or ()), *params.stop]
        asked |= {"stop": stop} if stop else {}
        return asked | ({"seed": params.seed} if params.seed is not None else {})

    async def context(self) -> int:
        """Return how many tokens prompt and completion may have together."""
        return self._context

    async def load(self, version: str, path: Path) -> None:
        """Raise `PolicyRefused`."""
        raise PolicyRefused(f"got adapter {str(path)!r}; {self.framework} moves its own weights, load nothing")

    async def unload(self, version: str) -> None:
        """Raise `PolicyRefused`."""
        raise PolicyRefused(f"got version {version!r}; {self.framework} serves no versions of ours, unload nothing")

    async def loaded(self) -> frozenset[str]:
        """Return none."""
        return frozenset()

    async def aclose(self) -> None:
        """Leave the servers to the framework."""
