"""`evolve exemplars`: look at the solved tasks that are shown with others, retire one, take them elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evolve.cli.kind_commands import find_of, records_of, retire_of
from evolve.cli.opening import reading, writing
from evolve.cli.output import Json, show, table
from evolve.cli.playbook import report

if TYPE_CHECKING:
    from memory.records import Record
    from playbooks.kinds.exemplar import Exemplar

KIND = "exemplar"

app = typer.Typer(help="Solved tasks shown as examples: list, show, retire, import, export.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Number (12), label (exemplar-00012) or id.")]
All = Annotated[bool, typer.Option("--all", help="Also quarantined, superseded, retired and rejected ones.")]


@app.command("list")
def listing(context: typer.Context, everything: All = False, as_json: Json = False) -> None:
    """List the exemplars with their counters."""
    rows = [_row(record) for record in records_of(context, KIND, everything)]
    if not as_json:
        rows = [{name: value for name, value in row.items() if name not in ("id", "text")} for row in rows]
    table(rows, as_json, empty="there are no exemplars; [exemplars] enabled keeps tasks that were solved")


@app.command("show")
def show_one(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Show one exemplar whole, with the task and the episode that it comes from."""
    with reading(context) as (config, store):
        record = find_of(store, config.memory.namespace, name, KIND)
    data = record.model_dump(mode="json")
    facts = {k: data[k] for k in ("id", "status", "version", "supersedes", "provenance", "usage", "created_at")}
    lines = [f"{key}: {value}" for key, value in facts.items()]
    show(data, as_json, "\n".join([f"[{record.label}]", record.payload.text(), "", *lines]))


@app.command()
def retire(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Take an exemplar out of all prompts; `evolve playbook restore` brings it back."""
    retire_of(context, name, KIND, as_json)


@app.command("import")
def import_file(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="File to read, written by `evolve exemplars export`.")],
    as_json: Json = False,
) -> None:
    """Bring in exemplars of others. They are quarantined: in no prompt until you `evolve playbook restore` them."""
    from evolve.workspace.editing import OPERATOR
    from memory.errors import BadInput
    from memory.operations import imported
    from playbooks.formats.exemplars import import_ops, load

    try:
        found = load(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise BadInput(f"{str(file)!r} is no UTF-8 text ({error}); save it as UTF-8") from error
    with writing(context) as (config, store):
        ops = [imported(op, config.memory.namespace) for op in import_ops(found, source=f"exemplars:{file.name}")]
        report(store.commit(config.memory.namespace, ops, actor=OPERATOR), as_json)


@app.command("export")
def export_file(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="Where to write; else printed.")] = None,
    as_json: Json = False,
) -> None:
    """Write the exemplars in use as JSON."""
    from playbooks.formats.exemplars import dump

    records = records_of(context, KIND, False)
    text, data = dump(records), {"exemplars": len(records)}
    if file is None:
        show(data | {"text": text}, as_json, text)
    else:
        file.write_text(text, encoding="utf-8")
        show(data | {"file": str(file)}, as_json, f"wrote {len(records)} exemplars to {file}")


def _row(record: Record[Exemplar]) -> dict[str, Any]:
    usage = record.usage
    return {
        "id": record.id,
        "label": record.label,
        "task": record.payload.task,
        "text": record.payload.text(),
        "turns": len(record.payload.turns),
        "shown": usage.injected,
        "followed": usage.cited,
        "helpful": usage.helpful,
        "status": record.status.value + (" (pinned)" if record.pinned else ""),
        "trust": record.provenance.trust.value,
        "learned from": ", ".join(record.provenance.task_ids),
    }
