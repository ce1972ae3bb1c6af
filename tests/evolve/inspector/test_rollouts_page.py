"""The pages of a training's rollouts: what is listed, how turns are shaded, and that none of it is more than text.

R1  a training leads to its rollouts, a list can be narrowed, and one shows prompt, turns, rewards and its group
R2  a turn is shaded by its advantage beside the largest of its group, up or down
R3  planted text is text on every one of these pages, on the server and in an exported file
R4  what is not there is a clean 404
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.xss import PAYLOADS, ROLLOUTS, TRAINING, plant
from evolve.config.file import load_config
from evolve.generations.workspace_registry import FOLDER
from evolve.inspector.pages.rollouts_page import shade
from evolve.loop.assembly import open_store
from evolve.training import ledger
from evolve.training.rollout_store import StoredRollout, write
from tests.evolve.command import evolve, settings
from tests.evolve.inspector.conftest import Visitor, opened


def rollout(name: str, iteration: int, reward: float, advantages: tuple[float | None, ...] = ()) -> StoredRollout:
    own: dict[str, Any] = {
        "id": name,
        "iteration": iteration,
        "task": f"task of {name}",
        "group": f"chain-{iteration}/0",
    }
    own |= {"position": 0, "rollout": int(name[-1]), "rewards": {"outcome": reward, "skill": 0.0}, "stop": "done"}
    turns = [
        {
            "steps": [{"index": at, "action": f"act {at}", "observation": f"saw {at}"}],
            "tokens": 4,
            "advantage": advantage,
        }
        for at, advantage in enumerate(advantages)
    ]
    prompt = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "count to ten"}]
    return StoredRollout.model_validate(own | {"success": reward > 0, "graded": True, "turns": turns, "prompt": prompt})


@pytest.fixture
def visitor(tmp_path: Path) -> Iterator[Visitor]:
    """A workspace with a training of two iterations."""
    folder = settings(tmp_path / "workspace")
    config = load_config(folder / "evolve.toml")
    open_store(config, owner=False).close()
    training = config.workspace / FOLDER / ledger.FOLDER / "grpo-1"
    training.mkdir(parents=True)
    figures = {"success": 0.5, "written": 9, "written_max": 12}
    for iteration in (0, 1):
        ledger.append(training / ledger.METRICS, figures | {"iteration": iteration})
        ledger.append(training / ledger.HISTORY, {"iteration": iteration, "episodes": [f"ro-{iteration}1"]})
    write(training, 0, [rollout("ro-01", 0, 1.0), rollout("ro-02", 0, 0.0)])
    write(training, 1, [rollout("ro-11", 1, 1.0, (0.1, 0.9, None)), rollout("ro-12", 1, 0.0, (-0.5, 0.0))])
    with opened(folder) as found:
        yield found


def tasks(page: str) -> list[str]:
    return re.findall(r">task of (ro-\d+)</a>", page)


def test_a_training_leads_to_its_rollouts_and_they_can_be_narrowed(visitor: Visitor) -> None:
    page = visitor.text("/training/grpo-1")
    assert 'href="/rollouts/grpo-1"' in page
    assert len(re.findall('class="chart"', page)) == 2, "success alone, lengths together"
    assert "What it earns" in page
    assert "Its updates" not in page, "no heading without a chart"
    assert tasks(visitor.text("/rollouts/grpo-1")) == ["ro-11", "ro-12", "ro-01", "ro-02"]
    assert tasks(visitor.text("/rollouts/grpo-1?iteration=0")) == ["ro-01", "ro-02"]
    assert tasks(visitor.text("/rollouts/grpo-1?outcome=failed")) == ["ro-12", "ro-02"]
    assert tasks(visitor.text("/rollouts/grpo-1?group=chain-1%2F0&outcome=solved")) == ["ro-11"]
    assert "No rollout fits" in visitor.text("/rollouts/grpo-1?iteration=9")


def test_one_shows_its_prompt_its_turns_and_its_group(visitor: Visitor) -> None:
    assert 'href="/rollouts/grpo-1%2Fro-11"' in visitor.text("/rollouts/grpo-1")
    page = visitor.text("/rollouts/grpo-1%2Fro-11")
    assert "count to ten" in page
    assert re.findall(r'<pre class="action[^"]*">(act \d)</pre>', page) == ["act 0", "act 1", "act 2"]
    assert "saw 2" in page
    assert "+0.5, the mean of its tokens" in page, "of the two turns that were trained on"
    assert "not trained on" in page
    assert "outcome 1.000" in page
    assert 'href="/rollouts/grpo-1%2Fro-12">2</a>' in page


def test_a_turn_is_shaded_by_its_advantage(visitor: Visitor) -> None:
    for name, shades in (("ro-11", ["up1", "up3", ""]), ("ro-12", ["down2", ""])):
        page = visitor.text(f"/rollouts/grpo-1/{name}")
        assert re.findall(r'<pre class="action ([^"]*)">', page) == shades
    assert [shade(each, 0.9) for each in (None, 0.0, 0.3, 0.31, -0.9)] == ["", "", "up1", "up2", "down3"]


def test_planted_text_is_text(tmp_path: Path) -> None:
    plant(tmp_path)
    (tmp_path / "evolve.toml").write_text('[memory]\nindex = "exact"\n')
    evolve(tmp_path, "export", "html", str(tmp_path / "planted.html"))
    with opened(tmp_path) as visitor:
        served = [visitor.text(path) for path in (f"/training/{TRAINING}", f"/rollouts/{TRAINING}", *ROLLOUTS[::7])]
    exported = (tmp_path / "planted.html").read_text().partition("<main>")[2].partition("</main>")[0]
    assert exported.count('id="rollouts-') == 1 + len(PAYLOADS)
    for page in (*(page.partition("<main")[2] for page in served), exported):
        assert not re.search(r"<(script|img|iframe|object|base|meta|video|marquee|style|math)\b", page)
        assert not re.search(r' (?:href|action)="(?!/|#)', page), "no address that is not ours"
    assert exported.count("{{ 7 * 7 }}") > 20, "nothing is evaluated"
    assert sum("&lt;" in page for page in served) == len(served)
    assert len(PAYLOADS) == len(ROLLOUTS)


@pytest.mark.parametrize(
    "path", ["/rollouts/nosuch", "/rollouts/grpo-1/nosuch", "/rollouts/..%2f..%2fetc", "/rollouts/grpo-1/..%2f..%2fetc"]
)
def test_what_is_not_there_is_a_clean_404(path: str, visitor: Visitor) -> None:
    assert "keeps no rollout" in visitor.text(path, 404)
