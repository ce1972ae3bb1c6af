"""Clusters of failures: by what went wrong, deterministic, nobody lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memory.embedders.hashing import HashingEmbedder
from playbooks.notebook.failure_clusters import batches, cluster, cluster_id
from playbooks.notebook.failure_evidence import Failure

UNITS = "payments: payments.send amount: expected cents, got dollars"
LOGIN = "mail.send: E7 log in before"
DATES = "events: calendar.add date must be dmy"


def failure(number: int, complaint: str, instruction: str = "") -> Failure:
    return Failure(
        trajectory_id=f"t{number}",
        task_id=f"task-{number}",
        instruction=instruction or f"do thing {number}",
        attempt=(),
        complaints=(complaint,) if complaint else (),
    )


FAILURES = [
    failure(1, UNITS, "pay Rodor for lunch"),
    failure(2, LOGIN, "write to Rodor about the lunch"),
    failure(3, UNITS, "send 30 dollars to Kim"),
    failure(4, DATES, "enter the meeting on May 4"),
    failure(5, LOGIN, "tell Kim about the report"),
    failure(6, UNITS, "pay Kim for the taxi"),
]


def members(failures: list[Failure], **options: float) -> list[tuple[str, ...]]:
    return [item.trajectory_ids for item in cluster(failures, HashingEmbedder(), **options)]


def test_failures_of_one_cause_are_one_cluster_and_one_like_no_other_is_its_own() -> None:
    assert members(FAILURES) == [("t1", "t3", "t6"), ("t2", "t5"), ("t4",)]


def test_nobody_is_lost_whatever_the_distance() -> None:
    for distance in (0.01, 0.3, 0.6, 1.0, 2.0):
        found = members(FAILURES, distance=distance)
        assert sorted(key for group in found for key in group) == [f"t{n}" for n in range(1, 7)]
    assert len(members(FAILURES, distance=0.01)) == 6
    assert len(members(FAILURES, distance=2.0)) == 1


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_failures(count: int) -> None:
    assert len(members(FAILURES[:count])) == count


def test_a_failure_about_which_nothing_is_known_is_clustered_by_its_task() -> None:
    silent = [failure(n, "", text) for n, text in enumerate(("pay Rodor for lunch", "pay Rodor for dinner"))]
    assert members([*silent, FAILURES[3]]) == [("t0", "t1"), ("t4",)]


def test_an_id_follows_from_the_members_alone() -> None:
    first, second = cluster(FAILURES, HashingEmbedder()), cluster(FAILURES, HashingEmbedder())
    assert first == second
    assert [item.id for item in first] == [cluster_id(item.trajectory_ids) for item in first]
    assert cluster_id(["a", "b"]) == cluster_id(["b", "a"]) != cluster_id(["a"])
    turned = cluster(FAILURES[::-1], HashingEmbedder())
    assert {item.id for item in turned} == {item.id for item in first}


def test_another_process_finds_the_same() -> None:
    script = (
        "from tests.playbooks.test_notes_clusters import FAILURES, HashingEmbedder, cluster\n"
        "print([item.id for item in cluster(FAILURES, HashingEmbedder())])"
    )
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    ran = subprocess.run([sys.executable, "-c", script], cwd=root, env=env, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == str([item.id for item in cluster(FAILURES, HashingEmbedder())])


def test_batch_mode_makes_fewer_notes_than_streaming() -> None:
    batch = [item for part in batches(FAILURES, 16) for item in cluster(part, HashingEmbedder())]
    stream = [item for part in batches(FAILURES, 1) for item in cluster(part, HashingEmbedder())]
    assert (len(batch), len(stream)) == (3, 6)
    assert [len(part) for part in batches(FAILURES, 4)] == [4, 2]
