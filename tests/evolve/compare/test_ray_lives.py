"""Lives of a comparison whose episodes are done by workers of a Ray cluster (`run.executor = "ray"`).

L1  a comparison there comes to what it comes to in this process; all its lives share the workers
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.ray_cluster import cluster
from evolve.compare.arms import Given, resolve
from evolve.compare.compare_session import compare
from evolve.compare.plan import ComparisonOptions, make_plan
from tests.evolve.compare.test_compare import DEAF, DOORS

pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module", autouse=True)
def two_nodes() -> Iterator[None]:
    with cluster(2):
        yield


def test_l1_lives_by_workers_come_to_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from evolve.loop.executors.ray_worlds import WorldsExecutor

    known: list[tuple[str, int]] = []
    before = WorldsExecutor.know

    def know(own: WorldsExecutor, config: Any, environment: Any) -> None:
        known.append((config.run.name, id(own)))
        before(own, config, environment)

    monkeypatch.setattr(WorldsExecutor, "know", know)
    told: list[Any] = []
    for executor in ("local", "ray"):
        (tmp_path / "evolve.toml").write_text(DOORS)
        given = Given(tmp_path / "evolve.toml", {"run.executor": executor})
        plan = make_plan([resolve(arm, given) for arm in ("default", DEAF.removeprefix("deaf "))], ComparisonOptions())
        told.append([(arm.name, arm.rate) for arm in compare(plan, tmp_path / executor).arms])
    assert told[0] == told[1]
    names, executors = map(set, zip(*known, strict=True))
    assert len(names) == len(plan.arms)
    assert len(executors) == 1
