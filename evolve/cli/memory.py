"""`evolve memory`: search it, count it, forget things, check and repair it; `evolve playbook contradictions`.

Before something is forgotten, and after, it is said what that takes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evolve.cli.opening import load, reading, writing
from evolve.cli.output import Json, say, show, table

if TYPE_CHECKING:
    from memory.forget import Forgotten
    from memory.store import Store


app = typer.Typer(help="The memory underneath: search, stats, forget, doctor, salvage, reindex.", no_args_is_help=True)


@app.command()
def search(
    context: typer.Context,
    text: Annotated[str, typer.Argument(help="What to look for.")],
    k: Annotated[int, typer.Option("-k", help="Most records to return.")] = 10,
    as_json: Json = False,
) -> None:
    """Recall records as a task with this text would, with the parts of their scores."""
    from evolve.workspace.editing import searched

    with reading(context) as (config, store):
        found = searched(store, config, text, k)
    table(found.rows(), as_json, empty="nothing recalled")


@app.command("stats")
def count(context: typer.Context, as_json: Json = False) -> None:
    """Count what the workspace holds."""
    from evolve.workspace.editing import stats

    with reading(context) as (config, store):
        data = stats(store, config).model_dump(mode="json")
    show(data, as_json, "\n".join(f"{key}: {value}" for key, value in data.items()))


@app.command()
def forget(
    context: typer.Context,
    record: Annotated[str | None, typer.Argument(help="Record to forget.")] = None,
    task: Annotated[str | None, typer.Option(help="Forget a task: its episodes and all drawn from it.")] = None,
    purge: Annotated[bool, typer.Option("--purge", help="Erase the text everywhere; cannot be undone.")] = False,
    reason: Annotated[str, typer.Option(help="Why; it stays on the tombstone.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
    as_json: Json = False,
) -> None:
    """Forget a record or a task, after showing what that takes and asking; what it said is not learned again.

    A tombstone stays, and the figures of the task's episodes. --purge erases the text: out of other episodes it is cut,
    the workspace's log files are emptied, and captured content is taken out of its traces.
    """
    from evolve.workspace import forgetting as forgets

    with writing(context) as (config, store):
        plan = forgets.preview(store, config, record, task=task, purge=purge)
        if not yes:
            _ask(forgets.as_data(plan), lines(store, plan, purge=purge, done=False), as_json)
        told = lines(store, plan, purge=purge, done=True)
        gone = forgets.forget(store, config, record, task=task, purge=purge, reason=reason)
    show({"done": True, **forgets.as_data(gone)}, as_json, "\n".join(told))


def _ask(data: dict[str, Any], told: list[str], as_json: bool) -> None:
    """Show what would be forgotten and ask; end with exit code 1 on "no", and where there is nobody to ask."""
    if not as_json and sys.stdin.isatty():
        say("\n".join(told))
        if typer.confirm("go on?"):
            return
        message = "nothing was forgotten"
    else:
        message = (
            "nothing was forgotten: there is no terminal to ask on; look at what it takes and repeat it with --yes"
        )
    if as_json:
        error = {"type": "NotConfirmed", "message": message}
        show({"done": False, **data, "error": error}, True, "")
    else:
        say("\n".join([*told, f"error: {message}"]), error=True)
    raise typer.Exit(1)


@app.command()
def doctor(
    context: typer.Context,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make the tables again from the journal.")] = False,
    as_json: Json = False,
) -> None:
    """Check the workspace and mend its vector index; exit 1 when something is wrong, or was.

    What is known against this version of SQLite is said on stderr.
    """
    from evolve.workspace import upkeep
    from memory.doctor import library

    with reading(context) as (config, _):
        pass  # there is a workspace
    found = upkeep.doctor(config, rebuild=rebuild)
    findings = [each for each in found if each.code != upkeep.LOCKED]
    for each in found:
        if each not in findings:
            say(each.message, error=True)
    if not config.memory.database and (known := library()):
        say(f"{known.message}; {known.fix}", error=True)
    table([each.model_dump(mode="json") for each in findings], as_json, empty="healthy")
    if any(f.level == "error" or f.code.startswith("index") for f in findings):
        raise typer.Exit(1)


@app.command()
def salvage(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="New database; default: a dated one beside the old.")] = None,
    as_json: Json = False,
) -> None:
    """Save what can be read of a damaged database into a new one, and say what was lost. The old one stays as it is."""
    from evolve.errors import ConfigError
    from evolve.loop.assembly import DATABASE, make_embedder, register_kinds
    from memory.base import now
    from memory.sqlite.salvage import salvage as save
    from memory.store import Store

    config = load(context)
    if config.memory.database:
        raise ConfigError("this workspace is on a server; restore the server's own backup, or one of `evolve backup`")
    source = config.workspace / DATABASE
    target = file or config.workspace / f"salvaged-{now():%Y%m%dT%H%M%SZ}.db"
    register_kinds()
    saved = save(source, target)
    with Store.open(target, embedder=make_embedder(config), index="exact") as store:
        store.reindex()
    rows = [(name, getattr(saved, name), getattr(saved, f"{name}_lost")) for name in ("records", "episodes", "texts")]
    least = "at least " if saved.events_lost else ""  # what only the lost lines spoke of is not counted
    told = [f"saved to {target}", *(f"  {name}: {kept} saved, {least}{lost} lost" for name, kept, lost in rows)]
    told += [
        f"  lines of the journal: {saved.events} saved, {saved.events_lost} lost",
        f"look at it, and put it in place: keep a copy of {source} and of what is called like it, delete them, "
        f"rename the new file to {source.name}, delete the folder index/, run `evolve memory doctor`",
    ]
    show(saved.model_dump(mode="json"), as_json, "\n".join(told))


@app.command()
def reindex(context: typer.Context, as_json: Json = False) -> None:
    """Embed every record anew with the configured embedder and refill the vector index."""
    from evolve.loop.assembly import open_store

    with open_store(load(context)) as store:
        count = store.reindex()
        store.index.flush(600)
    show({"versions": count}, as_json, f"re-indexed {count} versions")


def register(app: typer.Typer) -> None:
    """Add the verb to `evolve playbook`."""
    app.command("contradictions")(contradictions)


def contradictions(context: typer.Context, as_json: Json = False) -> None:
    """List the rules that contradict each other, and which one is shown; `possible` ones are for you to judge."""
    from evolve.episode.journal_evidence import evidence_of
    from evolve.episode.skill_runtime.shown_skills import texts
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


_NAMES = {"trajectory": "episodes", "reply": "replies", "reflection": "reflections", "run": "run records"}
_SHOWN = 60
"""Characters of a record that are shown."""


def lines(store: Store, gone: Forgotten, *, purge: bool, done: bool) -> list[str]:
    """Return what is gone as text for people; call it before it is done, while the records can be named."""
    told = ["forgot:" if done else "this would be forgotten:"]
    told += [f"  record {_named(store, key, quote=not done)}" for key in gone.records]
    if len(gone.namespaces) > 1:
        told.append(f"  these records are in several namespaces: {', '.join(gone.namespaces)}")
    if gone.episodes:
        told.append(f"  episodes: {_counted(gone.episodes)}; their figures stay, their content is out of reach")
    if purge:
        told.append(f"  {gone.bodies} stored texts erased whole")
        if gone.quoted:
            kinds = {_NAMES.get(kind, f"events {kind!r}"): count for kind, count in gone.quoted.items()}
            told.append(f"  the same text cut out of others, which stay: {_counted(kinds)}")
        told.append("  all log files of the workspace, and captured content in its traces")
    if gone.runs:
        told.append(f"  runs concerned, their figures stay: {', '.join(gone.runs)}")
    if gone.descendants:
        told.append(
            f"  kept, made from a forgotten record: {', '.join(_named(store, key) for key in gone.descendants)}"
        )
    return told + [f"  this copy still holds the text, delete it: {path}" for path in gone.backups]


def _named(store: Store, record_id: str, *, quote: bool = False) -> str:
    record = store.get(record_id)
    if record is None:
        return f"{record_id} (forgotten before)"
    others = record.provenance.task_ids
    text = json.dumps(record.payload.text()[:_SHOWN], ensure_ascii=False)
    return f"{record.label}" + (f" {text}, drawn from {', '.join(others) or 'no task'}" if quote else "")


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
