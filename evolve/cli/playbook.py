"""`evolve playbook`: look at what was learned, compare versions, change it by hand, bring it in and out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from evolve.cli.opening import reading, writing
from evolve.cli.output import Json, show, table

if TYPE_CHECKING:
    from evolve.workspace.editing import KnowledgeRow
    from evolve.workspace.exchange import ImportedPlaybook
    from memory.records import Commit

app = typer.Typer(help="What was learned: list, show, diff, change, roll back.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Number (12), label (shr-00012) or id.")]
Format = Annotated[Literal["ace", "kayba", "markdown", "json"], typer.Option("--format", "-f", help="Whose format.")]


@app.command("list")
def listing(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Also superseded, retired and rejected ones.")] = False,
    quarantined: Annotated[bool, typer.Option("--quarantined", help="Only what is kept out of all prompts.")] = False,
    as_json: Json = False,
) -> None:
    """List the bullets with their counters and their utility, which fades with the tasks done."""
    from evolve.workspace.editing import KnowledgeScope, listed

    wanted: KnowledgeScope = "quarantined" if quarantined else "all" if everything else "in use"
    with reading(context) as (config, store):
        found = listed(store, config, show=wanted, bounds=as_json)
    rows = found.rows() if as_json else [_short_row(each) for each in found]
    table(rows, as_json, empty="nothing is quarantined" if quarantined else "the playbook is empty")


@app.command("show")
def show_one(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Show one bullet with its origin, counters and utility."""
    from evolve.workspace.editing import detail

    with reading(context) as (config, store):
        found = detail(store, config, name)
    data = found.row()
    keys = ["id", "status", "version", "supersedes", "provenance", "usage", "utility", "created_at"]
    keys += [name for name in ("reported", "elsewhere") if data[name]]
    lines = [f"[{found.label}] {found.content}", "", *(f"{key}: {data[key]}" for key in keys)]
    show(data, as_json, "\n".join(lines))


@app.command()
def log(
    context: typer.Context,
    limit: Annotated[int, typer.Option("-n", help="Most snapshots, the latest.", min=1)] = 20,
    as_json: Json = False,
) -> None:
    """List the latest versions (snapshots) of the playbook, newest last, with the runs that began or ended there."""
    from evolve.workspace.versions import snapshots

    with reading(context) as (config, store):
        rows = snapshots(store, config.memory.namespace, limit).rows()
    table(rows, as_json, empty="no snapshot yet")


@app.command()
def diff(
    context: typer.Context,
    a: Annotated[str, typer.Argument(help="Older snapshot.")],
    b: Annotated[str | None, typer.Argument(help="Newer snapshot; else what is live now.")] = None,
    as_json: Json = False,
) -> None:
    """Show what changed between two snapshots, or since one."""
    from evolve.workspace.versions import diff as between

    with reading(context) as (config, store):
        found = between(store, config.memory.namespace, a, b)
    lines = [f"+ {line}" for line in found.added] + [f"- {line}" for line in found.removed]
    for change in found.changed:
        lines += [f"~ {change.before}", f"  {change.after}"]
    show(found.model_dump(mode="json"), as_json, "\n".join(lines) or "no difference")


@app.command()
def blame(
    context: typer.Context,
    name: Name,
    everything: Annotated[bool, typer.Option("--all", help="Also each time it was shown and credited.")] = False,
    as_json: Json = False,
) -> None:
    """Show who wrote and changed a bullet, and from which run and tasks."""
    from evolve.workspace.editing import history

    with reading(context) as (config, store):
        found = history(store, config, name, everything=everything)
    table(found.rows(), as_json)


@app.command()
def add(
    context: typer.Context,
    content: Annotated[str, typer.Argument(help="The rule in words.")],
    section: Annotated[str, typer.Option(help="Section it belongs to.")] = "STRATEGIES AND HARD RULES",
    pin: Annotated[bool, typer.Option(help="Always show it.")] = True,
    allow_forgotten: Annotated[bool, typer.Option("--allow-forgotten", help="Even if it was forgotten.")] = False,
    as_json: Json = False,
) -> None:
    """Add a bullet by hand."""
    from evolve.workspace import editing

    with writing(context) as (config, store):
        namespace = config.memory.namespace
        made = editing.add(store, namespace, content, section=section, pin=pin, allow_forgotten=allow_forgotten)
        report(made, as_json)


@app.command()
def edit(
    context: typer.Context,
    name: Name,
    content: Annotated[str, typer.Argument(help="The new text or code; of a note or exemplar, JSON of its fields.")],
    as_json: Json = False,
) -> None:
    """Change a bullet's text or a skill's code; the old version stays in the journal."""
    from evolve.workspace import editing

    with writing(context) as (config, store):
        report(editing.edit(store, config.memory.namespace, name, content), as_json)


@app.command()
def retire(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Take a bullet out of all prompts; `restore` brings it back."""
    from evolve.lookup import named
    from evolve.workspace import editing

    with writing(context) as (config, store):
        namespace = config.memory.namespace
        report(editing.retire(store, namespace, named(store, namespace, name)), as_json)


@app.command()
def restore(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Bring a retired or quarantined bullet into prompts, on your authority."""
    from evolve.lookup import named
    from evolve.workspace import editing

    with writing(context) as (config, store):
        namespace = config.memory.namespace
        report(editing.restore(store, namespace, named(store, namespace, name)), as_json)


@app.command()
def rollback(
    context: typer.Context,
    snapshot: Annotated[str, typer.Argument(help="Snapshot to return to, from `evolve playbook log`.")],
    as_json: Json = False,
) -> None:
    """Make an earlier snapshot the live playbook again. The rollback is journalled and can itself be rolled back."""
    from evolve.workspace import versions

    with writing(context) as (config, store):
        report(versions.rollback(store, config.memory.namespace, snapshot), as_json)


@app.command("import")
def import_file(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="File to read.")],
    form: Annotated[
        Literal["ace", "kayba", "markdown", "json"] | None,
        typer.Option("--format", "-f", help="Whose format; else it is told by what stands in the file."),
    ] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Show them in prompts at once, on your authority.")] = False,
    as_json: Json = False,
) -> None:
    """Bring in a playbook of others. It is quarantined: in no prompt until it passes `test` or you `restore` it."""
    from evolve.workspace.exchange import import_playbook

    with writing(context) as (config, store):
        found = import_playbook(store, config, file, form=form, trust=trust)
    _imported(found, trust, as_json)


@app.command("export")
def export_file(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="Where to write; else printed.")] = None,
    form: Format = "ace",
    as_json: Json = False,
) -> None:
    """Write the live playbook (its bullets) in a format of others."""
    from evolve.workspace.exchange import export_playbook

    with reading(context) as (config, store):
        text, count = export_playbook(store, config.memory.namespace, form)
    data: dict[str, Any] = {"format": form, "bullets": count}
    if file is None:
        show(data | {"text": text}, as_json, text)
    else:
        file.write_text(text, encoding="utf-8")
        show(data | {"file": str(file)}, as_json, f"wrote {count} bullets to {file}")


def _imported(found: ImportedPlaybook, trust: bool, as_json: bool) -> None:
    """Say what an import did, what is quarantined and what comes next."""
    commit, applied = found.commit, found.applied
    state = "shown from now on" if trust else "quarantined: in no prompt yet"
    text = f"read as {found.format}: {applied} applied" + (f" ({state})" if applied else "")
    omitted = f", {found.too_long} longer than `gate.static.max_chars` left out" if found.too_long else ""
    omitted += f", {found.left_out} lines left out that are no item of a list" if found.left_out else ""
    text += f", {found.known} already known{omitted}, {len(commit.refused)} refused; version {commit.version}"
    lines = [text, *(f"refused: {result.reason}" for result in commit.refused)]
    if applied and not trust:
        lines.append(
            "next: `evolve playbook test` measures them and shows what helps, `evolve playbook restore LABEL` shows "
            "one on your word, `evolve playbook list --quarantined` lists them"
        )
    show(found.row(), as_json, "\n".join(lines))
    if commit.refused:
        raise typer.Exit(1)


def _short_row(each: KnowledgeRow) -> dict[str, Any]:
    counts = {"shown": each.shown, "+": each.helpful, "-": each.harmful, "utility": each.utility.mean}
    return {"label": each.label, "content": each.content} | counts | {"status": each.status, "trust": each.trust}


def report(commit: Commit, as_json: bool) -> None:
    """Say what a commit did; a refused op makes the exit code 1."""
    data = commit.model_dump(mode="json")
    lines = [f"{len(commit.applied)} applied, {len(commit.refused)} refused; version {commit.version}"]
    show(data, as_json, "\n".join([*lines, *(f"refused: {result.reason}" for result in commit.refused)]))
    if commit.refused:
        raise typer.Exit(1)
