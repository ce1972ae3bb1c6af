"""`evolve skills import` and `evolve skills export`: skills as files of others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from evolve.cli.opening import reading, writing
from evolve.cli.output import Json, show

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
    from evolve.workspace.exchange import import_skills

    with writing(context) as (config, store):
        came = import_skills(store, config.memory.namespace, path, form)
    counts = ", ".join(f"{getattr(came, name)} {name}" for name in ("skills", "bullets", "notes"))
    lines = [f"{counts} in quarantine, {came.known_before} were there before"]
    lines += [f"refused: {text}" for text in came.refused] + [f"warning: {text}" for text in came.warnings]
    show(came.model_dump(mode="json"), as_json, "\n".join(lines))
    if came.refused:
        raise typer.Exit(1)


def export_folder(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", help="Folder in which each skill gets a folder of its own.")],
    names: Annotated[list[str] | None, typer.Argument(help="Names of the skills; else all in use.")] = None,
    as_json: Json = False,
) -> None:
    """Write skills in use as Agent Skills folders, each with a script that runs by itself."""
    from evolve.workspace.exchange import export_skills

    with reading(context) as (config, store):
        made = export_skills(store, config, out, names or ())
    show(made.model_dump(mode="json"), as_json, f"wrote {len(made.folders)} skills to {out}")
