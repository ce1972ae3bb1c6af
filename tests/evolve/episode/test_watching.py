"""Watched work is told to its watcher, and a watcher that breaks is dropped without the work noticing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from evolve.episode.instrumentation import watched, watching


@watched("double")
async def double(number: int) -> int:
    """Return it twice, after others had their turn."""
    await asyncio.sleep(0)
    return 2 * number


@watched("half")
def half(number: int, *, by: int = 2) -> float:
    """Return a part of it."""
    return number / by


class Notes:
    """Keeps what it is told; breaks at the `breaks`-th call."""

    def __init__(self, breaks: int = 0) -> None:
        self.seen: list[Any] = []
        self.breaks = breaks

    def begin(self, kind: str, args: Sequence[Any], options: Mapping[str, Any]) -> Notes:
        self._keep((kind, *args, *options.values()))
        return self

    def done(self, result: Any) -> None:
        self._keep(result)

    def failed(self, error: BaseException) -> None:
        self._keep(type(error))

    def _keep(self, what: Any) -> None:
        self.seen.append(what)
        if len(self.seen) == self.breaks:
            raise RuntimeError("broken")


async def test_a_watcher_is_told_what_goes_in_and_what_comes_out() -> None:
    notes = Notes()
    with watching(notes):
        assert await double(4) == 8
        assert half(9, by=3) == 3
        with pytest.raises(ZeroDivisionError):
            half(1, by=0)
    assert await double(1) == 2
    assert notes.seen == [("double", 4), 8, ("half", 9, 3), 3, ("half", 1, 0), ZeroDivisionError]


async def test_tasks_inherit_the_watcher_and_others_do_not_see_it() -> None:
    one, other = Notes(), Notes()

    async def work(notes: Notes, number: int) -> None:
        with watching(notes):
            await asyncio.gather(*(double(number) for _ in range(3)))

    await asyncio.gather(work(one, 1), work(other, 2), double(3))
    assert sorted(map(str, one.seen)) == ["('double', 1)"] * 3 + ["2"] * 3
    assert sorted(map(str, other.seen)) == ["('double', 2)"] * 3 + ["4"] * 3


@pytest.mark.parametrize("breaks", [1, 2])
async def test_a_broken_watcher_is_dropped_and_the_work_goes_on(breaks: int, caplog: pytest.LogCaptureFixture) -> None:
    notes = Notes(breaks)
    with watching(notes):
        assert [await double(n) for n in range(5)] == [0, 2, 4, 6, 8]
        with pytest.raises(ZeroDivisionError):
            half(1, by=0)
    assert len(notes.seen) == breaks
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "was dropped, nothing more is watched" in record.getMessage()
