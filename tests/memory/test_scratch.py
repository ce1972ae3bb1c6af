"""A copy to try changes on: as the original is now, apart from it, and gone afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from memory.records import DeltaOp
from memory.scratch import scratch, sweep
from memory.store import Store

Add = Callable[..., DeltaOp]
NO_PROCESS = 2**22 + 1
"""Above the highest number that Linux gives."""


def test_a_copy_is_as_the_original_and_what_is_done_to_it_stays_there(store: Store, add: Add, tmp_path: Path) -> None:
    store.commit("default", [add("one"), add("two")], actor="t")
    with scratch(store) as copy:
        assert copy.view("default").records() == store.view("default").records()
        assert copy.count_tokens is store.count_tokens
        (result,) = copy.commit("default", [add("three")], actor="t").results
        added = copy.get(str(result.record_id))
        assert added is not None
        assert added.number == 3
        assert len(store.records("default")) == 2
        (folder,) = tmp_path.glob("scratch-*")
        assert folder.name.startswith(f"scratch-{os.getpid()}-")
        assert sweep(tmp_path) == 0, "this process lives"
    assert list(tmp_path.glob("scratch-*")) == []


def test_only_copies_of_processes_that_are_gone_are_swept(tmp_path: Path) -> None:
    kept = [f"scratch-{os.getpid()}-a", "scratch-1-b", "scratch-x-c", "scratch-5", "other"]
    for name in [*kept, f"scratch-{NO_PROCESS}-d", f"scratch-{NO_PROCESS}-e"]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "evolve.db").touch()
    (tmp_path / f"scratch-{NO_PROCESS}-file").touch()
    assert sweep(tmp_path) == 3, "a file is no copy: it is in nobody's way"
    (tmp_path / f"scratch-{NO_PROCESS}-file").unlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)
    assert sweep(tmp_path) == 0
