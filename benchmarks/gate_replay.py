"""Real runs with every gate that measures, and their decisions made again from nothing but the journal.

The office's scripted worker acts and the `rules` reflector writes, so every call can be repeated; the runs are small.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evolve.config.model import Config
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.worker import make_worker
from evolve.gates.account import REPLAYS
from evolve.gates.decisions import redecided, rounds_of
from evolve.gates.online_ab import OnlineAB, Options, Rules, decide
from evolve.loop.assembly import open_store
from evolve.loop.nodes.expose import EXPOSURE, trials
from evolve.loop.nodes.gate import VERDICT
from evolve.loop.session import Parts, run
from memory.content import canonical
from memory.records import Event, Verdict
from memory.store import Store

DEPLOYMENT = 7
NAMESPACE = "default"


def replayed(tasks: int, runs: int) -> tuple[Counter[str], Counter[str]]:
    """Return how many decisions each gate made, and how many come out differently when they are made again.

    One workspace is worked in with the gates that run tasks again, in both modes of `held_out` and with calls for all
    of it; another one with `online_ab`, `runs` times over `tasks` tasks. Its e-values count as decisions too: each
    batch looks at them.
    """
    made: Counter[str] = Counter()
    differ: Counter[str] = Counter()
    again = ["static", "batch_screen", "held_out", "utility"]
    for mode in ("practical", "strict"):
        _work(
            again,
            [min(tasks, 16)],
            made,
            differ,
            calls_ratio=100,
            held_out={"mode": mode, "tasks": 24},
            utility={"rounds": 2},
        )
    _work(["static", "online_ab"], [tasks] * runs, made, differ, online_ab={"hide": 0.25})
    return made, differ


def _work(gates: list[str], runs: Sequence[int], made: Counter[str], differ: Counter[str], **gate: Any) -> None:
    office = Office(OfficeConfig(deployment=DEPLOYMENT))
    config: Config | None = None
    with tempfile.TemporaryDirectory() as folder:
        for at, tasks in enumerate(runs):
            config = Config.model_validate(
                {
                    "root": Path(folder),
                    "memory": {"index": "exact", "namespace": NAMESPACE},
                    "run": {"tasks": tasks, "batch_size": 8, "shuffle": True, "seed": at},
                    "playbook": {"reflector": "rules", "curator": "direct"},
                    "controls": {"no_memory": 0},
                    "gate": {"names": gates, **gate},
                }
            )
            run(config, parts=Parts(policy=make_worker(office), environment=office))
        assert config is not None, "every caller names a run"
        with open_store(config, read_only=True) as store:
            options = config.gate.of("online_ab", Options)
            rules = Rules(probability=options.hide, alpha=options.error, harm_alpha=options.error)
            _compare(store, rules, made, differ)


def _compare(store: Store, rules: Rules, made: Counter[str], differ: Counter[str]) -> None:
    for event in store.events(type=VERDICT):
        verdict = Verdict.model_validate(event.data)
        if rounds := rounds_of(verdict):
            made[verdict.gate] += len(rounds)
            differ[verdict.gate] += not _same(verdict, event, store)
    for event in store.events(type=EXPOSURE):
        known = trials(store, NAMESPACE, event.data["standing"], before=event.seq + 1)
        for item, statistics in event.data["standing"].items():
            made["e-values"] += 1
            differ["e-values"] += canonical(decide(known[item], rules).evidence["statistics"]) != canonical(statistics)


def _same(verdict: Verdict, event: Event, store: Store) -> bool:
    """Tell whether a verdict follows again from its evidence, and a live test's evidence from its exposures."""
    if verdict.gate == OnlineAB.name:
        item = verdict.evidence["trial"]["item"]
        observed = trials(store, NAMESPACE, [item], before=event.seq)[item].model_dump(mode="json")
        if canonical(observed) != canonical(verdict.evidence["trial"]):
            return False
    again = redecided(verdict, REPLAYS[verdict.gate])
    return canonical(again.model_dump(mode="json")) == canonical(verdict.model_dump(mode="json"))
