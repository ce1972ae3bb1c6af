"""`evolve skills import` and `evolve skills export`: skills as files of others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from evolve.cli.output import Json, reading, show, writing

Format = Literal["agent-skills", "skillbank", "voyager"]


def register(app: typer.Typer) -> None:
    """Add the verbs to `evolve skills`."""
    app.command("import")(import_path)
    app.command("export")(export_folder)


def import_path(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="Folder or file of the skills.")],
    form: Annotated[Format | None, typer.Option("--format", "-f", help="Whose format; else told by the files.")] = None,
    as_json: Json = False,
) -> None:
    """Bring in skills of others. They are quarantined: in use only once gates passed them or you restored them."""
    from evolve.interchange import arrivals, read

    came = arrivals(read(path, form), source=f"skills:{path.resolve().name}")
    with writing(context) as (config, store):
        commit = store.commit(config.memory.namespace, came.ops, actor="operator") if came.ops else None
    stored = commit.applied if commit else ()
    refused = [*came.refused, *(result.reason for result in (commit.refused if commit else ()))]
    kinds = {op.op_id: op.kind for op in came.ops}
    names = {"skill": "skills", "bullet": "bullets", "note": "notes"}
    counts = {name: sum(kinds[r.op_id] == kind for r in stored) for kind, name in names.items()}
    known = sum(result.reason == "duplicate" for result in stored)
    data = counts | {"known_before": known, "refused": refused, "warnings": list(came.warnings)}
    lines = [
        ", ".join(f"{count} {name}" for name, count in counts.items()) + f" in quarantine, {known} were there before"
    ]
    lines += [f"refused: {text}" for text in refused] + [f"warning: {text}" for text in came.warnings]
    show(data, as_json, "\n".join(lines))
    if refused:
        raise typer.Exit(1)


def export_folder(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", help="Folder in which each skill gets a folder of its own.")],
    names: Annotated[list[str] | None, typer.Argument(help="Names of the skills; else all in use.")] = None,
    as_json: Json = False,
) -> None:
    """Write skills in use as Agent Skills folders, each with a script that runs by itself."""
    from evolve.interchange import standings
    from memory.errors import NotFound
    from skills.interchange.agent_skills import export
    from skills.library import Library

    with reading(context) as (config, store):
        library = Library(store.view(config.memory.namespace).records("skill"))
        records = [library.get(name) for name in dict.fromkeys(names or library.names)]
        if not records:
            raise NotFound("no skill is in use; see `evolve skills list --all`")
        folders = export(library, standings(store, config, records), out)
    data: dict[str, Any] = {"skills": [record.payload.name for record in records], "folders": list(map(str, folders))}
    show(data, as_json, f"wrote {len(folders)} skills to {out}")
