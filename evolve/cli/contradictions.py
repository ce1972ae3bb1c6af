"""`evolve playbook contradictions`: which rules exclude each other, and which one of them holds."""

from __future__ import annotations

from typing import Any

import typer

from evolve.cli.opening import reading
from evolve.cli.output import Json, table


def register(app: typer.Typer) -> None:
    """Add the verb to `evolve playbook`."""
    app.command("contradictions")(contradictions)


def contradictions(context: typer.Context, as_json: Json = False) -> None:
    """List the rules that contradict each other, and which one is shown; `possible` ones are for you to judge."""
    from evolve.episode.evidence import evidence_of
    from evolve.episode.skill_runtime.showing import texts
    from playbooks.contradictions import contradictions as certain
    from playbooks.contradictions import possible, weaker

    with reading(context) as (config, store):
        records = texts(store.view(config.memory.namespace))
        found = (*certain(records), *possible(records, store.embedder))
        by_id = {record.id: record for record in records}
        known = evidence_of(store, config.forget, records)
    rows: list[dict[str, Any]] = []
    for pair in found:
        a, b = by_id[pair.first], by_id[pair.second]
        holds = b if weaker(a, b, known) is a else a
        rows.append(
            {
                "rules": f"{a.label}, {b.label}",
                "difference": pair.difference,
                "holds": holds.label if pair.certain else None,
                "sure": "certain" if pair.certain else "possible",
                "texts": f"{a.payload.text()} | {b.payload.text()}",
            }
        )
    table(rows, as_json, empty="no contradiction")
