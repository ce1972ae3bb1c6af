"""One owner per index directory, named when a second one tries, known when it died."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from memory.embedders.hashing import HashingEmbedder
from memory.errors import IndexLocked
from memory.locks import Owner
from memory.store import Store

HOLD = "import sys, pathlib; from memory.locks import Owner; o = Owner(pathlib.Path(sys.argv[1])); o.acquire();"
HOLD += "o.mark_dirty(); print('held', flush=True); sys.stdin.read()"


@pytest.fixture
def index_dir(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def holder(index_dir: Path, root: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(index_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_owner_is_refused_with_pid_host_and_a_way_out(index_dir: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(IndexLocked) as caught:
        Owner(index_dir).acquire()
    for part in (str(holder.pid), repr(socket.gethostname()), 'memory.index = "exact"'):
        assert part in str(caught.value)


def test_a_store_says_so_too_and_opens_without_the_index(
    index_dir: Path, path: Path, holder: subprocess.Popen[str]
) -> None:
    with pytest.raises(IndexLocked, match=str(holder.pid)):
        Store.open(path, embedder=HashingEmbedder())
    with Store.open(path, embedder=HashingEmbedder(), owner=False) as store:
        assert not store.index.state().owner


def test_a_killed_owner_frees_the_lock_and_leaves_the_dirty_flag(
    index_dir: Path, holder: subprocess.Popen[str]
) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    owner = Owner(index_dir)
    owner.acquire()
    assert owner.dirty
    owner.release()
    assert not owner.dirty


def test_two_objects_of_one_process_exclude_each_other(index_dir: Path) -> None:
    first, second = Owner(index_dir), Owner(index_dir)
    first.acquire()
    with pytest.raises(IndexLocked, match=str(os.getpid())):
        second.acquire()
    first.release(clean=False)
    second.acquire()
    second.release()
    second.release()


def test_an_unclean_release_keeps_the_flag(index_dir: Path) -> None:
    owner = Owner(index_dir)
    owner.acquire()
    owner.mark_dirty()
    owner.release(clean=False)
    assert Owner(index_dir).dirty


def test_who_owns_nothing_gives_nothing_up(index_dir: Path) -> None:
    first, second = Owner(index_dir), Owner(index_dir)
    first.acquire()
    first.mark_dirty()
    second.release()
    assert (first.held, first.dirty, index_dir.with_suffix(".owner").exists()) == (True, True, True)
    first.release()
    assert (first.held, first.dirty, index_dir.with_suffix(".owner").exists()) == (False, False, False)
