"""Takes playbooks and skills of others in, quarantined, and writes those that are here for others."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

from evolve.archive.interchange import arrivals, read, standings
from evolve.archive.merging import Merged, merge
from evolve.archive.transfer import require_workspace
from evolve.config.file import changed
from evolve.config.model import Config
from evolve.episode.trust import text_of
from evolve.gates.static import options_of
from evolve.loop.assembly import open_store
from evolve.registry import member
from evolve.workspace.editing import OPERATOR
from evolve.workspace.places import settings_at
from memory.errors import BadInput, NotFound
from memory.operations import DUPLICATE, imported
from memory.records import RECALLABLE, Commit, DeltaOp, Frozen, Record, Status
from memory.store import Store
from playbooks import formats
from playbooks.formats import markdown
from playbooks.formats.detect import detect
from playbooks.formats.entry import import_ops
from playbooks.kinds.bullet import Bullet
from playbooks.similarity import exact_key
from skills.interchange.agent_skills import export
from skills.library import Library
from skills.record import Skill

PlaybookFormat = Literal["ace", "kayba", "markdown", "json"]
"""Whose format a playbook is read or written in."""
SkillFormat = Literal["agent-skills", "skillbank", "voyager"]
"""Whose format skills are read in."""


class ImportedPlaybook(Frozen):
    """What became of a playbook of others."""

    commit: Commit
    format: str
    applied: int
    known: int
    """Texts that were here already."""
    too_long: int
    """Texts of more than `gate.static.max_chars` characters: they are left out."""
    quarantined: int
    """In no prompt until a gate or the operator says so."""
    left_out: int = 0
    """Lines of a Markdown file that are neither an item of a list nor a heading."""

    def row(self) -> dict[str, Any]:
        """Return all of it as plain JSON values."""
        return self.commit.model_dump(mode="json") | self.model_dump(mode="json", exclude={"commit"})


class ImportedSkills(Frozen):
    """What became of skills of others; all of it is quarantined."""

    skills: int
    bullets: int
    notes: int
    known_before: int
    refused: tuple[str, ...]
    warnings: tuple[str, ...]


class ExportedSkills(Frozen):
    """Skills that were written as Agent Skills."""

    skills: tuple[str, ...]
    folders: tuple[str, ...]


def import_playbook(
    store: Store, config: Config, file: Path, *, form: PlaybookFormat | None = None, trust: bool = False
) -> ImportedPlaybook:
    """Bring in a playbook of others; without `form` its format is told by what stands in it.

    It is quarantined, unless `trust` shows it at once on the operator's word. Raises `BadInput` for what is none.
    """
    namespace = config.memory.namespace
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError as missing:
        raise NotFound(f"no file {str(file)!r}; give the path of a playbook") from missing
    except OSError as error:
        raise BadInput(f"{str(file)!r} cannot be read ({error.strerror}); give the file of a playbook") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{str(file)!r} is no UTF-8 text ({error}); save it as UTF-8") from error
    found: str = form or detect(text)
    _require_known(found)
    entries = member(formats, found).load(text)
    if not entries:
        raise BadInput(f"{str(file)!r} holds no bullet in format {found!r}; name another with --format")
    longest = options_of(config).max_chars
    short = [entry for entry in entries if len(entry.bullet.content) <= longest]
    ops = tuple(imported(op, namespace) for op in import_ops(short, source=f"{found}:{file.name}"))
    if trust:
        ops = tuple(op.model_copy(update={"status": Status.PROVISIONAL}) for op in ops)
    new = _unknown(ops, store.records(namespace))
    commit = store.commit(namespace, new, actor=OPERATOR)
    applied = sum(result.reason != DUPLICATE for result in commit.applied)
    return ImportedPlaybook(
        commit=commit,
        format=found,
        applied=applied,
        known=len(ops) - applied - len(commit.refused),
        too_long=len(entries) - len(short),
        quarantined=0 if trust else applied,
        left_out=markdown.left_out(text) if found == "markdown" else 0,
    )


def _require_known(form: str) -> None:
    if form not in (known := get_args(PlaybookFormat)):
        raise BadInput(f"got format {form!r}; expected one of {', '.join(known)}")


def export_playbook(store: Store, namespace: str, form: PlaybookFormat = "ace") -> tuple[str, int]:
    """Return the live playbook in a format of others, and how many bullets are in it."""
    _require_known(form)
    records = store.view(namespace).records(Bullet.kind)
    return member(formats, form).dump(records), len(records)


def import_skills(store: Store, namespace: str, path: Path, form: SkillFormat | None = None) -> ImportedSkills:
    """Bring in skills of others from a folder or file. Raises `NotFound`, and `BadInput` for what is none."""
    came = arrivals(read(path, form), source=f"skills:{path.resolve().name}")
    ops = [imported(op, namespace) for op in came.ops]
    commit = store.commit(namespace, ops, actor=OPERATOR) if ops else None
    applied = commit.applied if commit else ()
    stored = [result for result in applied if result.reason != DUPLICATE]
    kinds = {op.op_id: op.kind for op in ops}
    names = {"skill": "skills", "bullet": "bullets", "note": "notes"}
    return ImportedSkills(
        **{name: sum(kinds[r.op_id] == kind for r in stored) for kind, name in names.items()},
        known_before=len(applied) - len(stored),
        refused=(*came.refused, *(result.reason for result in (commit.refused if commit else ()))),
        warnings=came.warnings,
    )


def export_skills(store: Store, config: Config, folder: Path, names: Sequence[str] = ()) -> ExportedSkills:
    """Write skills in use (all, or those named) as Agent Skills, a folder each. Raises `NotFound`."""
    library = Library(store.view(config.memory.namespace).records(Skill.kind))
    records = [library.get(name) for name in dict.fromkeys(names or library.names)]
    if not records:
        raise NotFound("no skill is in use; see `evolve skills list --all`")
    folders = export(library, standings(store, config, records), folder)
    return ExportedSkills(skills=tuple(r.payload.name for r in records), folders=tuple(map(str, folders)))


def merge_place(store: Store, config: Config, place: str | PathLike[str], namespace: str | None = None) -> Merged:
    """Take what is in use in another workspace into this one; variables of the shell are about this one alone.

    Nothing is embedded or searched there, so no code runs that its settings name. Raises `NotFound` where there is
    none, or nothing ever was in the namespace, and `BadInput`.
    """
    theirs = settings_at(place, {}, variables=False)
    require_workspace(theirs)
    theirs = changed(theirs, {"memory.embedder": "hashing", "memory.index": "exact"})
    name = namespace or theirs.memory.namespace
    with open_store(theirs, read_only=True) as other:
        if name not in other.namespaces():
            known = ", ".join(map(repr, other.namespaces())) or "none"
            raise NotFound(f"no namespace {name!r} in {str(theirs.workspace)!r}; it has {known}: name one")
        return merge(
            store, config.memory.namespace, other, name, source=theirs.workspace.resolve().parent.name, actor=OPERATOR
        )


def _unknown(ops: Sequence[DeltaOp], records: Sequence[Record[Any]]) -> tuple[DeltaOp, ...]:
    """Return the ops whose text neither the playbook nor an earlier one of them has, word by word."""
    held = {*RECALLABLE, Status.CANDIDATE}
    seen = {exact_key(record.payload.text()) for record in records if record.status in held}
    new: list[DeltaOp] = []
    for op in ops:
        key = exact_key(text_of(op))
        if key not in seen:
            new.append(op)
        seen.add(key)
    return tuple(new)
