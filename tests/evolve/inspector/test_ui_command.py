"""`evolve ui` as a command: what it needs, what it prints, how it follows the journal."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from benchmarks.browser import inspector
from evolve.generations.workspace_registry import FOLDER, TRAININGS
from evolve.serving import listen
from evolve.training.ledger import METRICS
from memory.errors import BadInput
from tests.evolve.command import complaint, evolve


def test_it_needs_a_workspace(tmp_path: Path) -> None:
    assert "evolve init" in complaint(tmp_path, "ui", "--no-browser", code=1)
    assert list(tmp_path.iterdir()) == []


def test_a_taken_port_is_named_with_the_way_out() -> None:
    with listen(0) as taken, pytest.raises(BadInput, match="--port 0"):
        listen(taken.getsockname()[1])


def test_an_open_page_is_told_that_the_journal_grew_and_that_a_training_wrote_figures(learned: Path) -> None:
    with inspector(learned) as address:
        parts = urlsplit(address)
        assert parts.hostname == "127.0.0.1"
        assert len(parse_qs(parts.query)["key"][0]) >= 32
        with httpx.Client(base_url=f"http://{parts.netloc}", timeout=600) as client:
            client.get("/", params=parse_qs(parts.query), follow_redirects=True)
            with client.stream("GET", "/live") as stream:
                lines = stream.iter_lines()
                assert next(lines) == "retry: 2000"
                evolve(learned, "playbook", "add", "always be kind")
                told = [next(line for line in lines if line.startswith(start)) for start in ("event: ", "data: ")]
                folder = learned / ".evolve" / FOLDER / TRAININGS / "rollouts"
                folder.mkdir(parents=True)
                (folder / METRICS).write_text('{"iteration": 0}\n')
                figures = [next(line for line in lines if line.startswith(start)) for start in ("event: ", "data: ")]
    assert told[0] == "event: journal"
    assert json.loads(told[1].removeprefix("data: ")) > 0
    assert figures == told
