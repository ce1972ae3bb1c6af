"""`evolve skills`: look at the functions that were learned, test them, put them in use or out of it.

`evolve skills import` and `evolve skills export`: skills as files of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from evolve.cli.kind_commands import records_of
from evolve.cli.opening import reading, writing
from evolve.cli.output import Json, show, table
from evolve.cli.playbook import report

if TYPE_CHECKING:
    from evolve.workspace.skill_testing import Checked
    from memory.records import Record
    from skills.record import Skill


app = typer.Typer(
    help="Functions that were learned: list, show, test, promote, retire, import, export.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(help="The function's name, number (12), label (skill-00012) or id.")]
All = Annotated[bool, typer.Option("--all", help="Also quarantined, superseded, retired and rejected ones.")]


@app.command("list")
def listing(context: typer.Context, everything: All = False, as_json: Json = False) -> None:
    """List the skills with their counters."""
    rows = [_row(record) for record in records_of(context, "skill", everything)]
    if not as_json:
        rows = [{name: value for name, value in row.items() if name not in ("id", "signature")} for row in rows]
    table(rows, as_json, empty="there are no skills")


@app.command("show")
def show_one(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Show the code of one skill, with its origin, counters and what can be held against it."""
    from evolve.lookup import find_skill
    from evolve.workspace.seeding import held_against

    with reading(context) as (config, store):
        record = find_skill(store, config.memory.namespace, name)
    data = record.model_dump(mode="json")
    payload = {key: value for key, value in data["payload"].items() if key != "source" and value}
    facts = {key: data[key] for key in ("id", "status", "version", "provenance", "usage", "created_at")}
    found = {"complaints": list(held_against(record.payload, config))}
    lines = [f"{key}: {value}" for key, value in (payload | facts | found).items()]
    text = "\n".join([f"[{record.label}] {record.payload.text()}", "", record.payload.source.strip(), "", *lines])
    show(data | found | {"name": record.payload.name}, as_json, text)


@app.command("test")
def run_all(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Skills to test; else all in use.")] = None,
    as_json: Json = False,
) -> None:
    """Run the tests of skills in the sandbox; exit 1 when one fails."""
    import asyncio

    from evolve.lookup import find_skill
    from evolve.workspace.skill_testing import run_tests
    from skills.library import Library

    with reading(context) as (config, store):
        namespace = config.memory.namespace
        library = Library(store.view(namespace).records("skill"))
        wanted = [find_skill(store, namespace, name).payload.name for name in names or library.names]
        closures = [library.closure([name]) for name in wanted]

    async def every() -> list[tuple[Checked, ...]]:
        return [await run_tests(closure, config) for closure in closures]

    found = asyncio.run(every())
    rows = [
        {"skill": name, "task": each.task_id, "passed": each.error is None, "error": each.error, "code": each.code}
        for name, checked in zip(wanted, found, strict=True)
        for each in checked
    ]
    table(rows, as_json, empty="no tests")
    if not all(row["passed"] for row in rows):
        raise typer.Exit(1)


@app.command()
def promote(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Put a skill in use as active, on your authority: quarantined, retired or not yet measured."""
    from evolve.lookup import find_skill
    from evolve.workspace import editing

    with writing(context) as (config, store):
        found = find_skill(store, config.memory.namespace, name)
        report(editing.promote(store, config.memory.namespace, found), as_json)


@app.command()
def retire(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Put a skill out of use; `promote` brings it back. Refused while another skill calls it."""
    from evolve.lookup import find_skill
    from evolve.workspace import editing

    with writing(context) as (config, store):
        namespace = config.memory.namespace
        report(editing.retire(store, namespace, find_skill(store, namespace, name)), as_json)


@app.command()
def diff(
    context: typer.Context,
    name: Name,
    a: Annotated[int | None, typer.Argument(help="Older version; else the last one with other code.")] = None,
    b: Annotated[int | None, typer.Argument(help="Newer version; else the present one.")] = None,
    as_json: Json = False,
) -> None:
    """Show how the code of a skill changed between two of its versions."""
    import difflib

    from evolve.lookup import find_skill
    from memory.errors import NotFound

    with reading(context) as (config, store):
        record = find_skill(store, config.memory.namespace, name)
        known = {each.version: each for each in store.reader.versions(record.id)}
    newer = known.get(record.version if b is None else b)
    others = [v for v, each in known.items() if newer and v < newer.version and each.payload != newer.payload]
    older = known.get(a if a is not None else others[-1] if others else record.version)
    if newer is None or older is None:
        raise NotFound(f"skill {record.payload.name!r} has versions {', '.join(map(str, known))}; got {a} and {b}")
    sources = [each.payload.source.splitlines() for each in (older, newer)]
    names = f"v{older.version}", f"v{newer.version}"
    lines = list(difflib.unified_diff(sources[0], sources[1], *names, lineterm=""))
    data = {"name": record.payload.name, "a": older.version, "b": newer.version, "diff": lines}
    show(data, as_json, "\n".join(lines) or "no difference")


@app.command()
def log(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="One skill; else all.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also each time it was shown and credited.")] = False,
    as_json: Json = False,
) -> None:
    """Show who wrote, changed and judged skills, and from which run and tasks, oldest first."""
    from evolve.lookup import find_skill

    with reading(context) as (config, store):
        namespace = config.memory.namespace
        every = [record for record in store.records(namespace) if record.kind == "skill"]
        chosen = [find_skill(store, namespace, name)] if name else every
        events = [(record, event) for record in chosen for event in store.history(record.id)]
    rows: list[dict[str, Any]] = [
        {
            "seq": event.seq,
            "at": event.created_at.isoformat("T", "seconds"),
            "skill": record.payload.name,
            "event": event.type.removeprefix("knowledge."),
            "version": event.data.get("version"),
            "status": event.data.get("status"),
            "by": "/".join(filter(None, (event.data.get("actor"), event.data.get("provenance", {}).get("author")))),
            "run": event.run_id,
            "tasks": ", ".join(event.data.get("provenance", {}).get("task_ids", ())),
        }
        for record, event in sorted(events, key=lambda pair: pair[1].seq)
        if everything or event.type != "knowledge.tag"
    ]
    table(rows, as_json, empty="there are no skills")


@app.command()
def graph(context: typer.Context, as_json: Json = False) -> None:
    """Print which skill calls which, as a tree from those that none calls."""
    from skills.library import Library

    with reading(context) as (config, store):
        library = Library(store.view(config.memory.namespace).records("skill"))
    needs = {record.payload.name: list(record.payload.requires) for record in library.records}
    tops = [name for name in needs if not library.required_by(name)] or list(needs)
    done = set[str]()
    lines = [line for name in tops for line in _tree(name, needs, (), done)]
    show(needs, as_json, "\n".join(lines) or "there are no skills")


def _tree(name: str, needs: dict[str, list[str]], above: tuple[str, ...], done: set[str]) -> Iterator[str]:
    """Yield the lines of a skill and of what it calls; what stands in `done` was told above with all it calls."""
    mark = " (in a circle)" if name in above else "" if name in needs else " (not in use)"
    mark = mark or (" (see above)" if name in done and needs[name] else "")
    yield f"{'  ' * len(above)}{name}{mark}"
    for each in () if mark else needs[name]:
        yield from _tree(each, needs, (*above, name), done)
    done.add(name)


def _row(record: Record[Skill]) -> dict[str, Any]:
    usage = record.usage
    return {
        "id": record.id,
        "label": record.label,
        "name": record.payload.name,
        "signature": record.payload.signature,
        "description": record.payload.described(),
        "requires": ", ".join(record.payload.requires),
        "shown": usage.injected,
        "used": usage.cited,
        "helpful": usage.helpful,
        "harmful": usage.harmful,
        "version": record.version,
        "status": record.status.value,
        "trust": record.provenance.trust.value,
    }


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
