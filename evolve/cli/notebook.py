"""`evolve notebook`: look at the mistake notes, the clusters of failures behind them, and retire one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from evolve.cli.kind_commands import find_of, records_of, retire_of
from evolve.cli.opening import reading
from evolve.cli.output import Json, show, table

if TYPE_CHECKING:
    from memory.records import Record
    from playbooks.kinds.note import Note

KIND = "note"

app = typer.Typer(help="Mistake notes: list, show, clusters, retire.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Number (12), label (note-00012) or id.")]
All = Annotated[bool, typer.Option("--all", help="Also superseded, retired and rejected ones.")]


@app.command("list")
def listing(context: typer.Context, everything: All = False, as_json: Json = False) -> None:
    """List the notes with their counters."""
    rows = [_row(record) for record in records_of(context, KIND, everything)]
    if not as_json:
        rows = [{name: value for name, value in row.items() if name not in ("id", "note")} for row in rows]
    table(rows, as_json, empty="the notebook is empty")


@app.command("show")
def show_one(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Show one note whole, with the failures that it was written from."""
    with reading(context) as (config, store):
        record = find_of(store, config.memory.namespace, name, KIND)
    data = record.model_dump(mode="json")
    facts = {k: data[k] for k in ("id", "status", "version", "supersedes", "provenance", "usage", "created_at")}
    origin = {"cluster": record.payload.cluster_id, "failures": ", ".join(record.payload.failure_ids)}
    lines = [f"{key}: {value}" for key, value in (origin | facts).items()]
    show(data, as_json, "\n".join([f"[{record.label}] {record.payload.text()}", "", *lines]))


@app.command()
def clusters(context: typer.Context, everything: All = False, as_json: Json = False) -> None:
    """List the clusters of failures, each with the note that stands for it and the notes which that one replaced."""
    with reading(context) as (config, store):
        known = {record.id: record for record in store.records(config.memory.namespace)}
    rows = [
        {
            "cluster": record.payload.cluster_id,
            "note": record.label,
            "subject": record.payload.subject,
            "failures": len(record.payload.failure_ids),
            "tasks": ", ".join(record.provenance.task_ids),
            "replaces": ", ".join(known[key].label for key in record.supersedes if key in known),
        }
        for record in records_of(context, KIND, everything)
    ]
    table(rows, as_json, empty="the notebook is empty")


@app.command()
def retire(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Take a note out of all prompts; `evolve playbook restore` brings it back."""
    retire_of(context, name, KIND, as_json)


def _row(record: Record[Note]) -> dict[str, Any]:
    usage = record.usage
    return {
        "id": record.id,
        "label": record.label,
        "subject": record.payload.subject,
        "note": record.payload.text(),
        "failures": len(record.payload.failure_ids),
        "shown": usage.injected,
        "helpful": usage.helpful,
        "harmful": usage.harmful,
        "status": record.status.value + (" (pinned)" if record.pinned else ""),
        "trust": record.provenance.trust.value,
    }
