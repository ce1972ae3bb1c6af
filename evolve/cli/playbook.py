"""`evolve playbook`: look at what was learned, compare versions, change it by hand, bring it in and out."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from evolve.cli.output import Json, reading, show, table, writing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory.records import Commit, DeltaOp, Event, Record
    from playbooks.retirement import Case

app = typer.Typer(help="What was learned: list, show, diff, change, roll back.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Number (12), label (shr-00012) or id.")]
Format = Annotated[Literal["ace", "kayba", "markdown", "json"], typer.Option("--format", "-f", help="Whose format.")]
ACTOR = "operator"


@app.command("list")
def listing(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Also superseded, retired and rejected ones.")] = False,
    quarantined: Annotated[bool, typer.Option("--quarantined", help="Only what is kept out of all prompts.")] = False,
    as_json: Json = False,
) -> None:
    """List the bullets with their counters and their utility, which fades with the tasks done."""
    from evolve.worth import cases
    from memory.records import RECALLABLE, Status

    wanted = frozenset({Status.CANDIDATE}) if quarantined else frozenset(Status) if everything else RECALLABLE
    with reading(context) as (config, store):
        records = [record for record in store.records(config.memory.namespace) if record.status in wanted]
        known = cases(store, config.forget, records)
    empty = "nothing is quarantined" if quarantined else "the playbook is empty"
    table([_row(case) if as_json else _short_row(case) for case in known], as_json, empty=empty)


@app.command("show")
def show_one(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Show one bullet with its origin, counters and utility."""
    from evolve.worth import cases
    from memory.evidence import reported

    with reading(context) as (config, store):
        record = _find(store, config.memory.namespace, name)
        (case,) = cases(store, config.forget, [record])
        told = reported(store.history(record.id))
    data = record.model_dump(mode="json") | {"utility": _utility(case), "reported": told}
    keys = ["id", "status", "version", "supersedes", "provenance", "usage", "utility", "created_at"]
    keys += ["reported"] if told else []
    facts = {key: data[key] for key in keys}
    lines = [f"[{record.label}] {record.payload.text()}", "", *(f"{key}: {value}" for key, value in facts.items())]
    show(data, as_json, "\n".join(lines))


@app.command()
def log(
    context: typer.Context,
    limit: Annotated[int, typer.Option("-n", help="Most snapshots, the latest.")] = 20,
    as_json: Json = False,
) -> None:
    """List the latest versions (snapshots) of the playbook, newest last, with the runs that began or ended there."""
    from evolve.history import runs_at
    from memory.snapshots import address

    with reading(context) as (config, store):
        found = store.snapshots(config.memory.namespace)[-limit:]
        at = runs_at(store, config.memory.namespace)
    rows = [
        {
            "snapshot": f"{s.id[:12]}@{s.position}",
            "bullets": len(s.manifest),
            "at": s.created_at.isoformat("T", "seconds"),
            "runs": ", ".join(at.get(address(s), ())) or None,
        }
        for s in found
    ]
    table(rows, as_json, empty="no snapshot yet")


@app.command()
def diff(
    context: typer.Context,
    a: Annotated[str, typer.Argument(help="Older snapshot.")],
    b: Annotated[str | None, typer.Argument(help="Newer snapshot; else what is live now.")] = None,
    as_json: Json = False,
) -> None:
    """Show what changed between two snapshots, or since one."""
    with reading(context) as (config, store):
        namespace = config.memory.namespace
        names = [_snapshot(store, namespace, a), _snapshot(store, namespace, b) if b else None]
        before, after = ({r.id: r for r in store.view(namespace, name).records()} for name in names)
    added = [_line(record) for key, record in after.items() if key not in before]
    removed = [_line(record) for key, record in before.items() if key not in after]
    changed = [
        {"before": _line(before[key]), "after": _line(record)}
        for key, record in after.items()
        if key in before and before[key].version != record.version
    ]
    lines = [f"+ {line}" for line in added] + [f"- {line}" for line in removed]
    for change in changed:
        lines += [f"~ {change['before']}", f"  {change['after']}"]
    data = {"added": added, "removed": removed, "changed": changed}
    show(data, as_json, "\n".join(lines) or "no difference")


@app.command()
def blame(
    context: typer.Context,
    name: Name,
    everything: Annotated[bool, typer.Option("--all", help="Also each time it was shown and credited.")] = False,
    as_json: Json = False,
) -> None:
    """Show who wrote and changed a bullet, and from which run and tasks."""
    with reading(context) as (config, store):
        events = store.history(_find(store, config.memory.namespace, name).id)
    rows: list[dict[str, Any]] = [
        {
            "seq": event.seq,
            "at": event.created_at.isoformat("T", "seconds"),
            "event": event.type.removeprefix("knowledge.") if "reported" not in event.data else _hearsay(event),
            "by": "/".join(filter(None, (event.data.get("actor"), event.data.get("provenance", {}).get("author")))),
            "run": event.run_id,
            "tasks": ", ".join(event.data.get("provenance", {}).get("task_ids", ())),
        }
        for event in events
        if everything or event.type != "knowledge.tag" or "reported" in event.data
    ]
    table(rows, as_json)


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
    from memory.records import DeltaOp, Op, Provenance, Status, Trust

    with writing(context) as (config, store):
        op = DeltaOp(
            op=Op.ADD,
            payload={"content": content, "section": section},
            status=Status.ACTIVE,
            pinned=pin,
            allow_forgotten=allow_forgotten,
            provenance=Provenance(trust=Trust.OPERATOR, author=ACTOR),
        )
        report(store.commit(config.memory.namespace, [op], actor=ACTOR), as_json)


@app.command()
def edit(
    context: typer.Context,
    name: Name,
    content: Annotated[str, typer.Argument(help="The new text.")],
    as_json: Json = False,
) -> None:
    """Change the text of a bullet; the old version stays in the journal."""
    from memory.records import DeltaOp, Op

    with writing(context) as (config, store):
        record = _find(store, config.memory.namespace, name)
        payload = record.payload.model_dump(mode="json") | {"content": content}
        op = DeltaOp(op=Op.EDIT, target_id=record.id, payload=payload, base_version=record.version)
        report(store.commit(config.memory.namespace, [op], actor=ACTOR), as_json)


@app.command()
def retire(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Take a bullet out of all prompts; `restore` brings it back."""
    _change(context, name, "REMOVE", as_json)


@app.command()
def restore(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Bring a retired or quarantined bullet into prompts, on your authority."""
    _change(context, name, "RESTORE", as_json)


@app.command()
def rollback(
    context: typer.Context,
    snapshot: Annotated[str, typer.Argument(help="Snapshot to return to, from `evolve playbook log`.")],
    as_json: Json = False,
) -> None:
    """Make an earlier snapshot the live playbook again. The rollback is journalled and can itself be rolled back."""
    with writing(context) as (config, store):
        name = _snapshot(store, config.memory.namespace, snapshot)
        store.snapshot(config.memory.namespace)
        report(store.rollback(config.memory.namespace, name, actor=ACTOR), as_json)


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
    from memory.errors import BadInput
    from memory.records import Status
    from playbooks.formats.detect import detect
    from playbooks.formats.entry import import_ops

    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{str(file)!r} is no UTF-8 text ({error}); save it as UTF-8") from error
    named: str = form or detect(text)
    entries = importlib.import_module(f"playbooks.formats.{named}").load(text)
    if not entries:
        raise BadInput(f"{str(file)!r} holds no bullet in format {named!r}; name another with --format")
    ops = import_ops(entries, source=f"{named}:{file.name}")
    if trust:
        ops = tuple(op.model_copy(update={"status": Status.PROVISIONAL}) for op in ops)
    with writing(context) as (config, store):
        new = _unknown(ops, store.records(config.memory.namespace))
        commit = store.commit(config.memory.namespace, new, actor=ACTOR)
    _imported(commit, named, len(ops) - len(new), trust, as_json)


@app.command("export")
def export_file(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="Where to write; else printed.")] = None,
    form: Format = "ace",
    as_json: Json = False,
) -> None:
    """Write the live playbook (its bullets) in a format of others."""
    with reading(context) as (config, store):
        records = store.view(config.memory.namespace).records("bullet")
    text = importlib.import_module(f"playbooks.formats.{form}").dump(records)
    data: dict[str, Any] = {"format": form, "bullets": len(records)}
    if file is None:
        show(data | {"text": text}, as_json, text)
    else:
        file.write_text(text, encoding="utf-8")
        show(data | {"file": str(file)}, as_json, f"wrote {len(records)} bullets to {file}")


def _unknown(ops: Sequence[DeltaOp], records: Sequence[Record[Any]]) -> tuple[DeltaOp, ...]:
    """Return the ops whose text neither the playbook nor an earlier one of them has, word by word."""
    from evolve.trust import text_of
    from memory.records import RECALLABLE, Status
    from playbooks.similarity import exact_key

    held = {*RECALLABLE, Status.CANDIDATE}
    seen = {exact_key(record.payload.text()) for record in records if record.status in held}
    new: list[DeltaOp] = []
    for op in ops:
        key = exact_key(text_of(op))
        if key not in seen:
            new.append(op)
        seen.add(key)
    return tuple(new)


def _imported(commit: Commit, form: str, known: int, trust: bool, as_json: bool) -> None:
    """Say what an import did, what is quarantined and what comes next."""
    applied = len(commit.applied)
    state = "shown from now on" if trust else "quarantined: in no prompt yet"
    text = f"read as {form}: {applied} applied" + (f" ({state})" if applied else "")
    text += f", {known} already known, {len(commit.refused)} refused; version {commit.version}"
    lines = [text, *(f"refused: {result.reason}" for result in commit.refused)]
    if applied and not trust:
        lines.append(
            "next: `evolve playbook test` measures them and shows what helps, `evolve playbook restore LABEL` shows "
            "one on your word, `evolve playbook list --quarantined` lists them"
        )
    data = commit.model_dump(mode="json")
    data |= {"format": form, "applied": applied, "known": known, "quarantined": 0 if trust else applied}
    show(data, as_json, "\n".join(lines))
    if commit.refused:
        raise typer.Exit(1)


def _change(context: typer.Context, name: str, verb: Literal["REMOVE", "RESTORE"], as_json: bool) -> None:
    from memory.records import DeltaOp, Op

    with writing(context) as (config, store):
        op = DeltaOp(op=Op(verb), target_id=_find(store, config.memory.namespace, name).id)
        report(store.commit(config.memory.namespace, [op], actor=ACTOR), as_json)


def _row(case: Case, *, bounds: bool = True) -> dict[str, Any]:
    record, usage = case.record, case.record.usage
    return {
        "label": record.label,
        "status": record.status.value + (" (pinned)" if record.pinned else ""),
        "content": record.payload.text(),
        "shown": usage.injected,
        "cited": usage.cited,
        "helpful": usage.helpful,
        "harmful": usage.harmful,
        "utility": _utility(case, bounds=bounds),
        "trust": record.provenance.trust.value,
    }


def _short_row(case: Case) -> dict[str, Any]:
    row = _row(case, bounds=False)
    counts = {"shown": row["shown"], "+": row["helpful"], "-": row["harmful"], "utility": row["utility"]["mean"]}
    return (
        {name: row[name] for name in ("label", "content")} | counts | {"status": row["status"], "trust": row["trust"]}
    )


def _utility(case: Case, *, bounds: bool = True) -> dict[str, Any]:
    """Return the faded counts with mean and 95 % bounds, and what a gate measured (None = nothing)."""
    names = ("mean", *(("lower", "upper") if bounds else ()), "helpful", "harmful")
    facts = {name: round(getattr(case.utility, name), 4) for name in names}
    return facts | {"measured": case.measured.model_dump() if case.measured else None}


def _line(record: Record[Any]) -> str:
    return f"[{record.label} v{record.version}] {record.payload.text()}"


def _find(store: Any, namespace: str, name: str) -> Record[Any]:
    from evolve.lookup import find_record

    return find_record(store, namespace, name)


def _snapshot(store: Any, namespace: str, name: str) -> str:
    from evolve.lookup import find_snapshot

    return find_snapshot(store, namespace, name)


def report(commit: Commit, as_json: bool) -> None:
    """Say what a commit did; a refused op makes the exit code 1."""
    data = commit.model_dump(mode="json")
    lines = [f"{len(commit.applied)} applied, {len(commit.refused)} refused; version {commit.version}"]
    show(data, as_json, "\n".join([*lines, *(f"refused: {result.reason}" for result in commit.refused)]))
    if commit.refused:
        raise typer.Exit(1)


def _hearsay(event: Event) -> str:
    """Return what somebody outside said of a record, for the table of its events."""
    said = ", ".join(f"{name} {count}" for name, count in event.data["reported"].items())
    return f"reported {said} (no weight)"
