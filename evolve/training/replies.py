"""The replies of a training: a file for each iteration's groups, kept until the last of these was trained on."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from evolve.training import ledger
from policies.cache import CachedPolicy
from policies.protocols import Policy
from policies.recordings import Recordings


class Kept:
    """The reply files of a training's folder, each opened where it is first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[int, Recordings] = {}

    def replaying(self, policy: Policy, scope: str, born: int) -> CachedPolicy:
        """Return `policy` behind what groups that were begun in iteration `born` were told, by whatever weights."""
        if born not in self._files:
            path = _path(self._folder, born)
            ledger.cut(path)
            self._files[born] = Recordings(path)
        return CachedPolicy(policy, self._files[born], scope=scope, any_version=True)

    def get_reply(self, key: str) -> dict[str, Any] | None:
        """Return a reply from whichever opened file has it."""
        return next((found for file in self._files.values() if (found := file.get_reply(key))), None)


def sweep(folder: Path, kept: Collection[int]) -> None:
    """Remove the replies of all iterations but these."""
    for old in set(folder.glob("replies-*")) - {_path(folder, each) for each in kept}:
        old.unlink()


def _path(folder: Path, iteration: int) -> Path:
    return folder / f"replies-{iteration}.jsonl"
