"""What the claims about many machines measure with: what it counts is there, and what breaks is seen."""

from __future__ import annotations

from pathlib import Path

from benchmarks.claims import scale_2_faults
from benchmarks.server_faults import KINDS, Toll, Witness
from benchmarks.throughput import STEPS, committing, filled, settings, share_of_ideal, written
from evolve.config.model import Config
from evolve.loop.assembly import open_store


def test_a_call_that_is_made_after_its_reply_was_seen_is_a_call_repeated(tmp_path: Path) -> None:
    calls = tmp_path / "calls.txt"
    with open_store(Config(root=tmp_path)) as store:
        witness = Witness(store.journal, calls)
        calls.write_text("aa\nbb\n")
        witness.look()
        store.put_reply("key", {"reply": {"prompt_token_ids": [0xAA]}}, run_id="run", task_id="task")
        witness.look()
        assert (witness.repeated, witness.journalled) == (0, {"aa"})
        calls.write_text("aa\nbb\nbb\naa\n")
        witness.look()
        assert witness.repeated == 1
        assert len(witness.known) == len(store.events())


def test_faults_without_harm_meet_the_claim_and_each_harm_is_told() -> None:
    def toll(**harm: object) -> Toll:
        made = Toll(events=10, calls=10, anew=3, runs=2, resumed=1)
        made.faults.update(KINDS)
        for name, value in harm.items():
            setattr(made, name, value)
        return made

    def missed(found: Toll) -> int:
        return sum(row.ok is False for row in scale_2_faults.rows(found, len(KINDS)))

    assert missed(toll()) == 0
    harms = ({"lost": 1}, {"repeated": 1}, {"stuck": ["it"]}, {"different": 1}, {"findings": ["it"]}, {"locks": 1})
    assert [missed(toll(**harm)) for harm in (*harms, {"anew": 0})] == [1] * 7


def test_a_frozen_run_is_timed_and_a_learning_one_by_its_batches(tmp_path: Path) -> None:
    rate, share = share_of_ideal(settings(tmp_path / "a", "", 6, 0.01, mode="frozen", concurrency=2), 0.01)
    assert rate > 0
    assert 0 < share < STEPS
    given = settings(tmp_path / "b", "", 4, 0.0, mode="online", batch_size=2, concurrency=2)
    filled(given, 3)
    assert len(committing(given)) == 2
    with open_store(given, read_only=True) as store:
        assert len(store.records("default")) > 3


def test_what_several_processes_write_is_counted(tmp_path: Path) -> None:
    for apart in (False, True):
        found = written(settings(tmp_path / str(apart), "", 1, 0.0), 2, 3, apart=apart)
        assert (found.commits, found.lost) == (6, 0)
