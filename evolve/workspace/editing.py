"""Lists, shows, searches and changes what was learned; what is changed here is changed on the operator's word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args

from pydantic import Field, ValidationError

from evolve.config.model import Config
from evolve.episode.world_texts import EVENT
from evolve.gates.review_queue import in_other_words
from evolve.gates.scoring import cases
from evolve.lookup import named
from evolve.workspace.plain_rows import Rows
from memory.errors import BadInput
from memory.evidence import elsewhere, reported
from memory.records import (
    RECALLABLE,
    Commit,
    DeltaOp,
    Event,
    Frozen,
    Op,
    Provenance,
    RecallQuery,
    Record,
    Status,
    Trust,
)
from memory.store import Store
from memory.utility import Case, Measured
from playbooks.kinds.bullet import DEFAULT_SECTION
from skills.host_calls import documented
from skills.library import Library
from skills.names import free
from skills.record import Skill
from skills.static_checks import complaints

OPERATOR = "operator"
"""Who changes knowledge by hand, in the journal."""
KnowledgeScope = Literal["in use", "quarantined", "all"]
"""Which records: those in use, those that wait in quarantine, or all there ever were."""


class UtilityEstimate(Frozen):
    """How often a record helps, by counts that fade, and by what a gate measured."""

    mean: float
    lower: float | None
    """Of 95 %, as `upper`; None where bounds were not asked for."""
    upper: float | None
    helpful: float
    harmful: float
    measured: Measured | None
    """None: no gate has."""


class KnowledgeRow(Frozen):
    """One record of what was learned, in a line."""

    label: str
    """How it is cited and named in every method: `shr-00012`."""
    kind: str
    """`bullet`, `note`, `skill` or `exemplar`."""
    status: str
    """Its place in life, with `(pinned)` where the operator keeps it in every prompt."""
    content: str
    """What a prompt shows of it."""
    shown: int
    """Prompts it stood in."""
    cited: int
    helpful: int
    harmful: int
    utility: UtilityEstimate
    trust: str


class KnowledgeDetail(Frozen):
    """One record whole: its text, where it came from, how it was used and what it is worth."""

    record: Record[Any]
    utility: UtilityEstimate
    reported: dict[str, int] = Field(default={})
    """What clients outside said of it, which counts for nothing: mark -> how often."""
    elsewhere: dict[str, dict[str, int]] = Field(default={})
    """How it did in workspaces that were merged into this one, without weight: policy -> counter -> how often."""

    @property
    def label(self) -> str:
        """Return the name it is cited by."""
        return self.record.label

    @property
    def content(self) -> str:
        """Return what a prompt shows of it."""
        return self.record.payload.text()

    def row(self) -> dict[str, Any]:
        """Return all of it as plain JSON values."""
        data = self.model_dump(mode="json", exclude={"record"})
        return self.record.model_dump(mode="json") | data


class SearchRow(Frozen):
    """One record that a text recalls, with the parts of its score."""

    rank: int
    label: str
    content: str
    tokens: int
    lexical: float
    vector: float
    utility: float
    rrf: float


class HistoryRow(Frozen):
    """One event in the life of a record."""

    seq: int
    """Its place in the journal."""
    at: str
    event: str
    by: str
    """Who asked for it, and who wrote the text."""
    run: str
    tasks: str
    """Tasks it was drawn from."""


class Stats(Frozen):
    """What a workspace holds."""

    workspace: str
    namespace: str
    version: int
    """Grows by one with each change of knowledge."""
    records: dict[str, int]
    """Kind and status -> how many."""
    snapshots: int
    runs: int
    embedder: str
    index: str
    database_bytes: int


def listed(
    store: Store, config: Config, *, show: KnowledgeScope = "in use", kind: str = "", bounds: bool = True
) -> Rows[KnowledgeRow]:
    """Return what was learned, in order of creation. `kind`: only that one. `bounds` of utilities take a moment.

    Raises `BadInput` for anything else to show.
    """
    shown = {"in use": RECALLABLE, "quarantined": {Status.CANDIDATE}, "all": frozenset(Status)}.get(show)
    if shown is None:
        raise BadInput(f"got show = {show!r}; expected one of {', '.join(map(repr, get_args(KnowledgeScope)))}")
    found = [record for record in store.records(config.memory.namespace) if record.status in shown]
    known = cases(store, config.forget, [record for record in found if kind in ("", record.kind)])
    return Rows(_row(case, bounds=bounds) for case in known)


def detail(store: Store, config: Config, name: str) -> KnowledgeDetail:
    """Return a record by number, label, id or name of a skill. Raises `NotFound`."""
    record = named(store, config.memory.namespace, name)
    (case,) = cases(store, config.forget, [record])
    past = store.history(record.id)
    return KnowledgeDetail(record=record, utility=_utility(case), reported=reported(past), elsewhere=elsewhere(past))


def searched(store: Store, config: Config, text: str, k: int = 10) -> Rows[SearchRow]:
    """Return what a task with this text would recall, best first."""
    query = RecallQuery(text=text, namespace=config.memory.namespace, k=k)
    return Rows(
        SearchRow(rank=r.rank, label=r.record.label, content=r.record.payload.text(), tokens=r.tokens, **r.scores)
        for r in store.recall(query)
    )


def history(store: Store, config: Config, name: str, *, everything: bool = False) -> Rows[HistoryRow]:
    """Return who wrote and changed a record, and from which run and tasks; with `everything` each use as well."""
    events = store.history(named(store, config.memory.namespace, name).id)
    return Rows(
        HistoryRow(
            seq=event.seq,
            at=event.created_at.isoformat("T", "seconds"),
            event=event.type.removeprefix("knowledge.") if "reported" not in event.data else _hearsay(event),
            by="/".join(filter(None, (event.data.get("actor"), event.data.get("provenance", {}).get("author")))),
            run=event.run_id,
            tasks=", ".join(event.data.get("provenance", {}).get("task_ids", ())),
        )
        for event in events
        if everything or event.type != "knowledge.tag" or "reported" in event.data
    )


def stats(store: Store, config: Config) -> Stats:
    """Count what the workspace holds."""
    namespace = config.memory.namespace
    records = store.records(namespace)
    return Stats(
        workspace=str(config.workspace),
        namespace=namespace,
        version=store.version(namespace),
        records=dict(Counter(f"{r.kind} {r.status.value}" for r in records)),
        snapshots=len(store.snapshots(namespace)),
        runs=len(store.runs()),
        embedder=config.memory.embedder,
        index=config.memory.index,
        database_bytes=store.journal.size(),
    )


def add(
    store: Store,
    namespace: str,
    content: str,
    *,
    section: str = DEFAULT_SECTION,
    pin: bool = True,
    allow_forgotten: bool = False,
) -> Commit:
    """Add a bullet by hand; `pin` keeps it in every prompt. Refused, with the reason, where it was forgotten."""
    op = written(content, section=section, pin=pin, allow_forgotten=allow_forgotten)
    return store.commit(namespace, [op], actor=OPERATOR)


def written(content: str, *, section: str, pin: bool, allow_forgotten: bool = False, author: str = OPERATOR) -> DeltaOp:
    """Return the change that adds a bullet which a person wrote."""
    return DeltaOp(
        op=Op.ADD,
        payload={"content": content, "section": section},
        status=Status.ACTIVE,
        pinned=pin,
        allow_forgotten=allow_forgotten,
        provenance=Provenance(trust=Trust.OPERATOR, author=author),
    )


def edit(
    store: Store, namespace: str, name: str, content: str, *, actor: str = OPERATOR, version: int | None = None
) -> Commit:
    """Change a bullet's text, a skill's code, or fields of a note or exemplar; the old version stays in the journal.

    `content` is the new text or code; of a note or exemplar, a JSON object. `version`: the one that was read, None =
    the latest; the change is refused where another followed. Raises `NotFound`, and `BadInput`.
    """
    record = named(store, namespace, name)
    payload = in_other_words(record.kind, record.payload.model_dump(mode="json"), content)
    if record.kind == Skill.kind:
        payload = _recoded(store, namespace, record, payload).model_dump(mode="json")
    read = record.version if version is None else version
    return store.commit(namespace, [rewritten(record, payload, read, actor)], actor=actor)


def skill_from(fields: Mapping[str, Any], library: Library) -> Skill:
    """Return a skill that requires those of the library that its code names. Raises `BadInput` for what is no skill."""
    try:
        skill = Skill.model_validate({**fields, "requires": ()})
    except ValidationError as invalid:
        raise BadInput(str(invalid.errors(include_url=False)[0]["msg"])) from invalid
    return skill.model_copy(update={"requires": tuple(name for name in free(skill.function) if name in library.names)})


def complaints_about(
    store: Store, skill: Skill, runs: Collection[str], known: Collection[str] | None = None
) -> tuple[str, ...]:
    """Return what is wrong with a skill, which may call what the last of its runs told of the world, else any run.

    `known` are the names of skills that it may require, None = not checked.
    """
    wrong = complaints(skill, known=known)
    told = store.events(type=EVENT) if wrong else []
    said = [event.data.get("text", "") for event in [each for each in told if each.run_id in runs] or told]
    shown = documented(said[-1]) if said else ()
    return complaints(skill, known=known, documented=shown) if shown else wrong


def rewritten(record: Record[Any], payload: dict[str, Any], version: int, actor: str) -> DeltaOp:
    """Return the change by which a person gives a record, as it reads in that version, another payload."""
    return DeltaOp(
        op=Op.EDIT,
        kind=record.kind,
        target_id=record.id,
        payload=payload,
        base_version=version,
        provenance=Provenance(trust=Trust.OPERATOR, author=actor),
    )


def retire(store: Store, namespace: str, record: Record[Any], reason: str = "", *, actor: str = OPERATOR) -> Commit:
    """Take a record out of all prompts. Raises `BadInput` for a skill that another one calls."""
    if record.kind == Skill.kind:
        Library(store.view(namespace).records(Skill.kind)).require_uncalled(record.payload.name)
    op = DeltaOp(op=Op.REMOVE, kind=record.kind, target_id=record.id, reason=reason)
    return store.commit(namespace, [op], actor=actor)


def restore(store: Store, namespace: str, record: Record[Any], *, actor: str = OPERATOR) -> Commit:
    """Bring a record back as it was when it was last in use, on the operator's word; provisional where it never was."""
    used = [each for each in store.reader.versions(record.id) if each.status in RECALLABLE]
    status, pinned = (used[-1].status, used[-1].pinned) if used else (Status.PROVISIONAL, False)
    op = DeltaOp(op=Op.RESTORE, kind=record.kind, target_id=record.id, status=status, pinned=pinned)
    return store.commit(namespace, [op], actor=actor)


def promote(store: Store, namespace: str, record: Record[Any], reason: str = "", *, actor: str = OPERATOR) -> Commit:
    """Put a record in use as active, on the operator's word: quarantined, retired or not yet measured."""
    op = DeltaOp(
        op=Op.RESTORE,
        kind=record.kind,
        target_id=record.id,
        status=Status.ACTIVE,
        pinned=record.pinned,
        provenance=Provenance(trust=Trust.OPERATOR, author=actor),
        reason=reason,
    )
    return store.commit(namespace, [op], actor=actor)


def applied(commit: Commit) -> Commit:
    """Return a commit of one change. Raises `BadInput` with the reason where it was refused."""
    for result in commit.refused:
        raise BadInput(f"the change was refused: {result.reason}")
    return commit


def _recoded(store: Store, namespace: str, record: Record[Skill], payload: Mapping[str, Any]) -> Skill:
    """Return a skill with other code, and with what that requires.

    Raises `BadInput` for what is wrong with the code and was not before, for skills that would require each other in a
    circle, and for another name while skills call the old one.
    """
    old = record.payload
    others = Library(each for each in store.view(namespace).records(Skill.kind) if each.id != record.id)
    skill = skill_from(payload, others)
    callers = others.required_by(old.name) if old.name not in {skill.name, *others.names} else ()
    if callers:
        raise BadInput(
            f"got the name {skill.name!r} for skill {old.name!r}, which {', '.join(callers)} call; keep the name, or "
            f"add {skill.name!r} as a skill of its own and retire {old.name!r} when nothing calls it"
        )
    runs = {event.run_id for event in store.history(record.id) if event.run_id and event.type != "knowledge.tag"}
    before = {_unplaced(each) for each in complaints_about(store, old, runs, others.names)}
    wrong = [each for each in complaints_about(store, skill, runs, others.names) if _unplaced(each) not in before]
    if wrong:
        raise BadInput(f"{skill.name} cannot be a skill: {'; '.join(wrong)}")
    others.overlay().put(skill)
    return skill


def _unplaced(complaint: str) -> str:
    """Return a complaint without its line, which an edit moves."""
    return complaint.partition(": ")[2]


def _row(case: Case, *, bounds: bool) -> KnowledgeRow:
    record, usage = case.record, case.record.usage
    return KnowledgeRow(
        label=record.label,
        kind=record.kind,
        status=record.status.value + (" (pinned)" if record.pinned else ""),
        content=record.payload.text(),
        shown=usage.injected,
        cited=usage.cited,
        helpful=usage.helpful,
        harmful=usage.harmful,
        utility=_utility(case, bounds=bounds),
        trust=record.provenance.trust.value,
    )


def _utility(case: Case, *, bounds: bool = True) -> UtilityEstimate:
    found = case.utility
    return UtilityEstimate(
        mean=round(found.mean, 4),
        lower=round(found.lower, 4) if bounds else None,
        upper=round(found.upper, 4) if bounds else None,
        helpful=round(found.helpful, 4),
        harmful=round(found.harmful, 4),
        measured=case.measured,
    )


def _hearsay(event: Event) -> str:
    """Return what somebody outside said of a record, for the table of its events."""
    said = ", ".join(f"{name} {count}" for name, count in event.data["reported"].items())
    return f"reported {said} (no weight)"
