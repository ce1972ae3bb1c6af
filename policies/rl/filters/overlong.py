"""DAPO's overlong filtering: what a limit cut off is not trained on."""

from __future__ import annotations

from dataclasses import dataclass

from memory.errors import BadInput
from policies.rl.protocols import Episodes, Flags

__all__ = ["Overlong"]


@dataclass(frozen=True)
class Overlong:
    """Keep a trajectory that ended by itself.

    Assumption: the reward of one that was cut off tells of the limit, not of its reasoning.
    Source: DAPO, arXiv 2503.14476, overlong filtering.
    """

    def keep(self, episodes: Episodes) -> Flags:
        """Return [n], False where `truncated`. Raises `BadInput` for episodes that do not tell."""
        if episodes.truncated is None:
            raise BadInput("got episodes without `truncated`; overlong expects True where a limit cut one off")
        return ~episodes.truncated
