"""Budget of the gates: model calls, at most a multiple of those that the stream has made so far, and an advance.

The purse is filled once a batch, from what the journal says; what is drawn from it depends on the episodes alone and
not on their order, so a resumed run comes to the same decisions about what can be afforded.
"""

from __future__ import annotations

from collections.abc import Iterable

from memory.errors import EvolveError
from memory.records import Trajectory


class OutOfCalls(EvolveError):
    """The gates have no calls left for what they want to run; the question waits for a later batch."""


class CallBudget:
    """Calls of the gates of one run. Without `fill` nothing is limited."""

    def __init__(self, ratio: float, episodes: Iterable[Trajectory] = (), *, advance: int = 0) -> None:
        self._ratio, self._advance = ratio, advance
        self._paid = {episode.id: episode.usage.calls for episode in episodes}
        self._spent = sum(self._paid.values())
        self._allowed: float | None = None
        self._mean = 0.0
        self._known = set(self._paid)

    @property
    def spent(self) -> int:
        """Return the calls of all gate episodes so far."""
        return self._spent

    @property
    def episodes(self) -> int:
        """Return how many episodes that was."""
        return len(self._known)

    def fill(self, stream_calls: int, stream_episodes: int, *, episodes: int | None = None) -> None:
        """Allow the ratio of `stream_calls` beside the advance.

        `episodes`: how many gate episodes there were when this batch began."""
        self._known = set(list(self._paid)[:episodes])
        self._spent = sum(self._paid[key] for key in self._known)
        self._allowed = self.allowance(stream_calls)
        self._mean = stream_calls / max(1, stream_episodes)

    def allowance(self, stream_calls: int) -> float:
        """Return how many calls the gates may have made when the stream has made `stream_calls`."""
        return self._ratio * stream_calls + self._advance

    @property
    def left(self) -> float:
        """Return the calls that may still be made."""
        return float("inf") if self._allowed is None else self._allowed - self._spent

    def knows(self, episode_id: str) -> bool:
        """Tell whether an episode was paid for: in an earlier batch, or in this one when it is its turn."""
        return episode_id in self._known

    def ask(self, episodes: int, most_calls: int, *, times: int = 1) -> None:
        """Raise `OutOfCalls` unless so many episodes are expected to fit `times` over, at the stream's mean.

        `most_calls` is what an episode can take at worst: one has to fit in any case.
        """
        expected = self._mean * episodes * times
        if episodes and max(expected, most_calls) > self.left:
            raise OutOfCalls(f"waits: about {expected:.0f} calls are needed and {max(0.0, self.left):.0f} are left")

    def reserve(self, episodes: int, most_calls: int) -> int:
        """Return how many episodes fit whatever they take, `episodes` at most. Raises `OutOfCalls` when none does."""
        if most_calls > self.left:
            raise OutOfCalls(f"waits: an episode could need more than the {max(0.0, self.left):.0f} calls left")
        return int(min(episodes, self.left // most_calls))

    def pay(self, episode: Trajectory) -> None:
        """Draw the calls of an episode; one that is known is paid for already."""
        if episode.id in self._known:
            return
        self._known.add(episode.id)
        self._paid[episode.id] = episode.usage.calls
        self._spent += episode.usage.calls
