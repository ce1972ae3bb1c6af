"""The replies of a training: a file for each iteration's groups, kept until the last of these was trained on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from evolve.training import ledger
from policies.cache import CachedPolicy
from policies.protocols import Message, Policy, Reply, SamplingParams
from policies.recordings import Recordings
from policies.wrapped import WrappedPolicy


class Kept:
    """The reply files of a training's folder, each opened where it is first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[int, Recordings] = {}
        self.asked: dict[str, tuple[Message, ...]] = {}
        """Key of each reply that was given -> the messages that it answered."""

    def replaying(self, policy: Policy, scope: str, born: int) -> Policy:
        """Return `policy` behind what groups that were begun in iteration `born` were told, by whatever weights."""
        if born not in self._files:
            path = _path(self._folder, born)
            ledger.cut(path)
            self._files[born] = Recordings(path)
        return _Noting(CachedPolicy(policy, self._files[born], scope=scope, any_version=True), self.asked)

    def get_reply(self, key: str) -> dict[str, Any] | None:
        """Return a reply from whichever opened file has it."""
        return next((found for file in self._files.values() if (found := file.get_reply(key))), None)


class _Noting(WrappedPolicy):
    """Notes what is asked."""

    def __init__(self, policy: Policy, asked: dict[str, tuple[Message, ...]]) -> None:
        super().__init__(policy)
        self._asked = asked

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return the inner policy's reply."""
        reply = await super().generate(messages, params)
        self._asked[reply.key] = tuple(messages)
        return reply


def sweep(folder: Path, kept: Collection[int]) -> None:
    """Remove the replies of all iterations but these."""
    for old in set(folder.glob("replies-*")) - {_path(folder, each) for each in kept}:
        old.unlink()


def _path(folder: Path, iteration: int) -> Path:
    return folder / f"replies-{iteration}.jsonl"
