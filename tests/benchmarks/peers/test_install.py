"""Installing peers: real pip, no index. What is installed on this machine is not touched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers.install import CHECKOUT, DONE, PEERS, find, home, install, main, missing, python
from memory.errors import BadInput
from policies.errors import PolicyUnavailable


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only place where pip looks; nothing is installed."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.setenv("EVOLVE_PEERS", str(tmp_path / "peers"))
    monkeypatch.delenv(CHECKOUT, raising=False)
    return folder


def test_every_peer_is_pinned_and_has_a_runner() -> None:
    assert len({peer.name for peer in PEERS}) == len(PEERS)
    for peer in PEERS:
        assert peer.runner.is_file()
        pinned = [each for each in (*peer.needs, peer.alone or "") if each.endswith(f"=={peer.version}")]
        assert bool(pinned) != bool(peer.checkout)


def test_a_wrong_name_is_refused_with_the_right_ones(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInput, match="expected one of gepa, langchain, kayba, ace"):
        find("autogen")
    assert main(["gepa-2"]) == 1
    assert "got peer 'gepa-2'" in capsys.readouterr().err
    assert not (shelf.parent / "peers").exists()


def test_what_is_missing_is_said_with_the_command_or_the_variable(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInput, match=r"python -m benchmarks\.peers\.install gepa"):
        python(find("gepa"))
    assert CHECKOUT in missing(find("ace"))
    monkeypatch.setenv(CHECKOUT, str(tmp_path / "nowhere"))
    assert "no folder" in missing(find("ace"))
    monkeypatch.setenv(CHECKOUT, str(tmp_path))
    assert "benchmarks.peers.install ace" in missing(find("ace"))


@pytest.mark.slow
def test_an_environment_is_whole_or_made_anew(shelf: Path) -> None:
    peer = replace(find("gepa"), needs=("no-such-package-anywhere==1.0",))
    with pytest.raises(PolicyUnavailable, match="pip must reach a package index"):
        install(peer)
    assert missing(peer)  # half an environment counts as none
    whole = replace(peer, needs=("pip",))  # it is there already: nothing is fetched
    leftover = home(peer) / "half"
    leftover.touch()
    folder = install(whole)
    assert not leftover.exists()
    assert not missing(whole)
    assert python(whole).is_file()
    before = (folder / DONE).stat().st_mtime_ns
    assert install(whole) == folder
    assert (folder / DONE).stat().st_mtime_ns == before
