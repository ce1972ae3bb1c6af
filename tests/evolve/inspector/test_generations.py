"""The pages of policies and trainings, over a registry and a training's own files.

G1  generations are listed with what was measured; what the gate did not accept is refused in its words
G2  an accepted one is promoted, and a rollback lets the one before answer again
G3  a training shows its curves, what it was trained on, and why it was stopped
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.random_adapters import random_adapter
from evolve.config.file import load_config
from evolve.generations.workspace_registry import FOLDER, model_directory, open_registry
from evolve.loop.assembly import open_store
from evolve.training import ledger
from tests.evolve.inspector.conftest import Visitor, opened

SETTINGS = '[policy]\nname = "pocket"\nmax_tokens = 8\n[memory]\nindex = "exact"\n'


@pytest.fixture
def trained(tmp_path: Path) -> Iterator[Visitor]:
    """A workspace with one candidate, made by a training of two iterations that a guard stopped."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "evolve.toml").write_text(SETTINGS)
    config = load_config(folder / "evolve.toml")
    open_store(config, owner=False).close()
    adapter = random_adapter(model_directory(config.policy), tmp_path / "adapter", 1, scale=1e-3)
    with open_registry(config.policy, config.workspace) as registry:
        registry.publish(adapter, base=registry.base, metrics={"tgc": 0.25}, config={"loss": "gspo"})
    training = config.workspace / FOLDER / ledger.FOLDER / "grpo-1"
    training.mkdir(parents=True)
    for iteration in (0, 1):
        figures = {"iteration": iteration, "success": 0.5, "loss": 0.1, "episodes": 8.0, "truncated_turns": 1.0}
        ledger.append(training / ledger.METRICS, figures)
        ledger.append(training / ledger.HISTORY, {"iteration": iteration, "episodes": [f"tr-{iteration}", "tr-x"]})
    (training / ledger.STOPPED).write_text("entropy of a token was 5")
    with opened(folder) as visitor:
        yield visitor


@pytest.mark.slow
def test_a_generation_is_promoted_and_rolled_back(trained: Visitor) -> None:
    page = trained.text("/policies")
    assert "policy-v1" in page
    assert "tgc" in page
    assert "was not measured by the gate" in trained.does("/policies/promote", version="policy-v1")
    config = trained.desk.config
    with open_registry(config.policy, config.workspace) as registry:
        registry.measure("policy-v1", {"gate.accepted": True, "gate.reason": "4 tasks gained"})
    assert "Done: `evolve policy promote policy-v1`" in trained.does("/policies/promote", version="policy-v1")
    assert "policy-v1 is live" in trained.text("/policies")
    assert "policy-v1" in trained.text("/")
    assert "Done: `evolve policy rollback`" in trained.does("/policies/rollback")
    assert "policy-v1 is live" not in trained.text("/policies")


def test_a_training_shows_its_curves_and_its_end(trained: Visitor) -> None:
    assert "entropy of a token was 5" in trained.text("/training")
    page = trained.text("/training/grpo-1")
    assert len(re.findall('class="chart"', page)) == 2
    assert "3 episodes had rows in it" in page
    assert re.search(r"<dt>episodes</dt><dd>16</dd>", page)
    assert re.search(r"<dt>truncated turns</dt><dd>2</dd>", page)
