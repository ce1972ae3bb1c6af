"""Skills of others become operations, and skills of ours leave with what the journal knows of them.

Whatever comes in is quarantined as imported playbooks are: a candidate of trust `imported`, in no prompt and in no
prelude until a gate measured it or a person restored it. Counters that others claim are not taken over.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evolve.config.model import Config
from evolve.gates.gate_events import VERDICT
from evolve.gates.quarantine import ADMITS
from evolve.gates.scoring import cases
from memory.base import first_error
from memory.errors import BadInput, NotFound
from memory.operations import op_id
from memory.records import DeltaOp, Frozen, Op, Provenance, Record, Status, Trust, Verdict
from memory.store import Store
from playbooks.formats.entry import Entry, import_ops
from playbooks.kinds.bullet import DEFAULT_SECTION, Bullet
from playbooks.kinds.note import LIMITS, Note, words
from playbooks.notebook.note_drafts import NoteDraft, note_of
from skills.interchange import agent_skills, skillbank, voyager
from skills.interchange.agent_skills import Standing
from skills.interchange.found import Found, Instruction, Mistake, read_text
from skills.record import Skill

FORMATS = ("agent-skills", "skillbank", "voyager")
WORKFLOWS = "PROBLEM-SOLVING HEURISTICS AND WORKFLOWS"
_NOT_WHEN = "the cause that it names is not there"
"""When an imported note does not apply: SkillBank says nothing of it, and a note must."""


class Arrivals(Frozen):
    """What an import asks to be stored."""

    ops: tuple[DeltaOp, ...]
    refused: tuple[str, ...]
    warnings: tuple[str, ...]


def read(path: Path, form: str | None = None) -> Found:
    """Return what a folder or file of others holds; without `form` it is told by its files.

    Raises `NotFound` when nothing is there, and `BadInput` when it is none of the formats.
    """
    if not path.exists():
        raise NotFound(f"no file or folder {str(path)!r}; give the path of skills to import")
    form = form or _form(path)
    if form == "skillbank":
        return skillbank.load(read_text(path))
    if not path.is_dir():
        raise BadInput(f"{str(path)!r} is no folder, and format {form!r} is one; give the folder, or another --format")
    return voyager.load(path) if form == "voyager" else agent_skills.load(path)


def arrivals(found: Found, source: str) -> Arrivals:
    """Return the operations that store what was found, all quarantined. The same items again change nothing."""
    ops = [_op(Skill.kind, skill.model_dump(mode="json"), skill.name, source) for skill in found.skills]
    ops += import_ops([_entry(text) for text in found.instructions], source)
    refused, warnings = list(found.refused), list(found.warnings)
    for mistake in found.mistakes:
        try:
            note, cut = _note(mistake)
        except ValidationError as invalid:
            refused.append(f"{mistake.name}: {first_error(invalid, 'note').replace('Value error, ', '', 1)}")
            continue
        ops.append(_op(Note.kind, note.model_dump(mode="json"), mistake.name, source))
        warnings += cut
    return Arrivals(ops=tuple(ops), refused=tuple(refused), warnings=tuple(warnings))


def standings(store: Store, config: Config, records: Sequence[Record[Any]]) -> dict[str, Standing]:
    """Return skill name -> what the journal knows of that record: versions, uses, measured utility, who admitted it."""
    admitted = _admitted(store, config.memory.namespace)
    return {
        case.record.payload.name: Standing(
            version=case.record.version,
            parent_hash=_parent(store, case.record),
            task_ids=case.record.provenance.task_ids,
            n_use=case.record.usage.cited,
            n_ok=case.record.usage.helpful,
            utility_mean=case.measured.mean if case.measured else None,
            utility_lcb=case.measured.lower if case.measured else None,
            verified_by=", ".join(admitted.get(case.record.id, ())),
        )
        for case in cases(store, config.forget, records)
    }


def _form(path: Path) -> str:
    if path.is_dir():
        return "voyager" if (path / voyager.INDEX).is_file() else "agent-skills"
    if skillbank.is_one(read_text(path)):
        return "skillbank"
    raise BadInput(f"{str(path)!r} is no skills that are known; expected one of {', '.join(FORMATS)}")


def _op(kind: str, payload: dict[str, Any], name: str, source: str) -> DeltaOp:
    return DeltaOp(
        op=Op.ADD,
        op_id=op_id("import", source, kind, name, repr(sorted(payload.items()))),
        kind=kind,
        payload=payload,
        status=Status.CANDIDATE,
        provenance=Provenance(trust=Trust.IMPORTED, author="import", source=f"{source}#{name}"),
        reason=f"imported from {source}",
    )


def _entry(text: Instruction) -> Entry:
    section = DEFAULT_SECTION if text.general else WORKFLOWS
    return Entry(bullet=Bullet(section=section, content=text.text, when=text.when), label=text.name)


def _note(mistake: Mistake) -> tuple[Note, tuple[str, ...]]:
    """Return the note of a mistake within the limits of notes, and a sentence for each part that had to be cut.

    Raises `ValidationError` for a part that says nothing, as `N/A` does.
    """
    draft = NoteDraft(
        subject=mistake.description,
        corrected_examples=(f"Wrong: {mistake.description} Right: {mistake.avoid}",),
        correct_approach=mistake.avoid,
        mistake_summary=mistake.description,
        strategy=f"Mind the cause: {mistake.why}",
        anti_patterns=(_NOT_WHEN,),
    )
    note = note_of(draft, ()).model_copy(update={"cluster_id": ""})
    lengths = {name: (_words(draft, name), _words(note, name)) for name in LIMITS}
    said = [
        f"{mistake.name}: {name} cut from {before} to {after} words"
        for name, (before, after) in lengths.items()
        if after < before
    ]
    return note, tuple(said)


def _words(holder: NoteDraft | Note, name: str) -> int:
    value: str | tuple[str, ...] = getattr(holder, name)
    return sum(map(words, (value,) if isinstance(value, str) else value))


def _parent(store: Store, record: Record[Any]) -> str:
    """Return the hash of the version before the present one; empty for the first."""
    before = (each for each in store.reader.versions(record.id) if each.version == record.version - 1)
    return next((each.content_hash for each in before), "")


def _admitted(store: Store, namespace: str) -> dict[str, tuple[str, ...]]:
    """Return record id -> the gates that measured its ops and said yes, sorted."""
    found: dict[str, set[str]] = {}
    for event in store.events(type=VERDICT, namespace=namespace):
        verdict = Verdict.model_validate(event.data)
        if verdict.gate not in ADMITS or not verdict.evidence:
            continue
        for record_id in store.records_of(verdict.accepted).values():
            found.setdefault(record_id, set()).add(verdict.gate)
    return {record_id: tuple(sorted(gates)) for record_id, gates in found.items()}
