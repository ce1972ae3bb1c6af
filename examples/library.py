"""Seventeen commands as one program: run, evaluate, look, change by hand, go back, forget.

    python examples/library.py [FOLDER]

FOLDER holds an evolve.toml; without one an office is made in a temporary folder, whose worker is a script, so that the
example runs anywhere. It prints the results as JSON by the command that gives the same; RUN, EXAM and OLD are names.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import evolve

WORKER = {"policy.name": "evolve.environments.office.worker:worker", "policy.model": "3", "environment.deployment": 3}
BY_RULES = {"playbook.reflector": "rules", "playbook.curator": "direct", "memory.index": "exact"}
RULE = "Greet the accountant."


def work(memory: evolve.Workspace) -> dict[str, object]:
    """Do it all, and return what came of it by command."""
    done = memory.run(limit=8)
    exam = memory.evaluate(["dev"], limit=2)
    old = memory.snapshots()[0].snapshot
    return {
        "report RUN": memory.report(done.run_id).model_dump(mode="json"),
        "report EXAM": memory.report(exam.run_id).model_dump(mode="json"),
        "report RUN EXAM": memory.compare_runs(done.run_id, exam.run_id).model_dump(mode="json"),
        "logs list": memory.runs().rows(),
        "logs list --run RUN --failed": memory.episodes(done.run_id, failed=True).rows(),
        "playbook list": memory.knowledge().rows(),
        "playbook show 1": memory.show("1").row(),
        "memory search 'pay by card'": memory.search("pay by card").rows(),
        f"playbook add '{RULE}'": memory.add(RULE).model_dump(mode="json"),
        f"playbook edit 1 '{RULE[:-1]} first.'": memory.edit("1", f"{RULE[:-1]} first.").model_dump(mode="json"),
        "playbook blame 1": memory.blame("1").rows(),
        "playbook diff OLD": memory.diff(old).model_dump(mode="json"),
        "playbook retire 1": memory.retire("1").model_dump(mode="json"),
        "playbook restore 1": memory.restore("1").model_dump(mode="json"),
        "playbook rollback OLD": memory.rollback(old).model_dump(mode="json"),
        "playbook export": memory.export_playbook(),
        "memory forget 1 --purge --yes": memory.forget("1", purge=True).model_dump(mode="json"),
    }


def main() -> None:
    """Work in the folder that was named, or in a new one."""
    with tempfile.TemporaryDirectory() as new:
        given = sys.argv[1:]
        with evolve.open(given[0] if given else Path(new), settings=None if given else WORKER | BY_RULES) as memory:
            print(json.dumps(work(memory), indent=1))


if __name__ == "__main__":
    main()
