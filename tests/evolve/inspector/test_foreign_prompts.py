"""The prompt of an episode in a world that somebody else wrote: shown, proved and counted (finding E12).

F1  its text and its tools stand on the page, without running the world again, and are proved by the reply's key
F2  the tokens are those that the policy counted, schemas included; without its count they are estimated with them
F3  the journal keeps the world's words once for a run, and a purge takes them away
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from evolve.config.file import load_config
from evolve.loop.assembly import open_store
from tests.evolve.command import evolve
from tests.evolve.inspector.conftest import Visitor, opened
from tests.evolve.inspector.helpdesk import MANUAL, SCENE

HERE = "tests.evolve.inspector.helpdesk"
SETTINGS = f"""\
[run]
tasks = 3
[policy]
name = "{HERE}:policy"
[environment]
name = "{HERE}:Helpdesk"
[memory]
index = "exact"
[playbook]
reflector = "rules"
curator = "direct"
[gate]
names = ["static"]
"""


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a workspace in which the helpdesk worked, once learning and once evaluated."""
    folder = tmp_path_factory.mktemp("helpdesk")
    (folder / "evolve.toml").write_text(SETTINGS)
    evolve(folder, "run")
    evolve(folder, "eval", "--split", "train")
    return folder


@pytest.fixture
def visitor(worked: Path) -> Iterator[Visitor]:
    with opened(worked) as found:
        yield found


def prompts(visitor: Visitor) -> list[str]:
    """Return the page of every episode, evaluated ones too."""
    return [unescape(visitor.text(f"/episodes/{each.id}")) for each in visitor.desk.store.trajectories()]


def test_the_prompt_of_a_foreign_world_is_shown_and_proved(visitor: Visitor) -> None:
    pages = prompts(visitor)
    assert len(pages) >= 6
    for page in pages:
        assert MANUAL in page
        assert SCENE in page
        assert "Close a ticket about a pump" in page
        assert "Close a ticket about a valve" not in page
        assert "the first reply is kept under the hash of exactly this request" in page


def test_its_tokens_are_those_that_were_sent(visitor: Visitor) -> None:
    for page in prompts(visitor):
        assert re.search(r"The prompt as sent \(5,770 tokens", page)
        assert "2 tools" in page


def test_without_a_count_the_schemas_are_estimated_too(visitor: Visitor) -> None:
    store = visitor.desk.store
    (episode, *_) = store.trajectories()
    bare = [step.model_copy(update={"usage": type(step.usage)()}) for step in episode.steps]
    store.add_trajectory(episode.model_copy(update={"id": "uncounted", "steps": tuple(bare)}))
    found = re.search(r"The prompt as sent \(([\d,]+) tokens, estimated", visitor.text("/episodes/uncounted"))
    assert found is not None
    assert int(found[1].replace(",", "")) > 300


def test_the_words_of_the_world_are_kept_once_for_a_run(worked: Path) -> None:
    config = load_config(worked / "evolve.toml")
    with open_store(config, read_only=True) as store:
        events = store.events(type="run.world")
        (bodies,) = store.journal.query("SELECT count(*) FROM content WHERE instr(body, ?)", (MANUAL,))[0]
    assert len(events) == 2
    assert bodies == 1
