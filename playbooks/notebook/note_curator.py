"""The Curator that keeps a mistake notebook: failures of a batch in, deltas of notes out. It changes nothing.

Failures are found (by reward, or by the policy itself where nobody grades), clustered, written up by the policy, and
merged with their neighbours. Reflections add what they know to the evidence; their tags are proposed as they are.

Notes without a model: a cluster's lessons as they are, in the parts of a note. For runs whose policy writes none.

What the reflector learned is the correct approach, what was found wrong is the mistake; strategy and anti-patterns
follow from what the lessons are about. A cluster without a lesson gives no note.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from memory.protocols import Embedder, KnowledgeView
from memory.records import DeltaOp, Frozen, Provenance, Reflection, Trajectory, Trust, Usage
from playbooks.kinds.bullet import one_line
from playbooks.kinds.note import LIMITS, said, words
from playbooks.lessons import tag_ops
from playbooks.notebook import failure_clusters, note_merge
from playbooks.notebook.failure_clusters import Cluster
from playbooks.notebook.failure_evidence import Failure, failure_of
from playbooks.notebook.failure_judge import Audit, Finding, audit, find_failures
from playbooks.notebook.note_drafts import NoteDraft, note_of
from playbooks.notebook.note_merge import Group, group, joined, merged, op_of
from playbooks.notebook.write import Written, write_notes
from playbooks.render import neutral
from playbooks.rules import errors_of
from policies.protocols import Policy


@dataclass(frozen=True)
class Episodes:
    """Where episodes are read."""

    find: Callable[[str], Trajectory | None]
    """Returns the trajectory of an id."""
    faults: Callable[[Trajectory], Sequence[str]] = lambda _: ()
    """What went wrong in one beside its grade: it is written about even if it succeeded."""
    judge: Policy | None = None
    """Says which of them failed where no outcome is read; None = the policy that writes."""


class NotebookSettings(Frozen):
    """How curator `notebook` turns failures into mistake notes."""

    batch: int = Field(default=16, ge=1)
    """Failures clustered together, of one `run.batch_size` at most; 1 = streaming, a note for each failure."""
    distance: float = Field(default=failure_clusters.DISTANCE, gt=0, le=2)
    """Mean cosine distance from which clusters of failures stay apart; smaller = more notes."""
    neighbours: int = Field(default=note_merge.NEIGHBOURS, ge=1)
    """Most known notes that a new one is merged with."""
    similarity: float = Field(default=note_merge.SIMILARITY, ge=-1, le=1)
    """Cosine of their subjects from which notes are merged."""
    writer: Literal["model", "rules"] = "model"
    """Who writes: the policy, or no model at all (the lessons of the `rules` reflector as they are)."""


class Settings(NotebookSettings):
    """How the notebook is kept."""

    label_free: bool = False
    """No outcome is read: `Episodes.judge` says which episodes failed."""


class NotebookCurator:
    """Writes one note for each cluster of failures. Implements `playbooks.protocols.Curator`.

    What a model said and could not be used is handed to `keep` as raw
    reflections; how the failures were found is handed to `record`, every episode counted.
    """

    def __init__(
        self,
        policy: Policy,
        embedder: Embedder,
        episodes: Episodes,
        *,
        settings: Settings | None = None,
        keep: Callable[[Reflection], object] = lambda _: None,
        record: Callable[[Audit], object] = lambda _: None,
    ) -> None:
        self._policy = policy
        self._embedder = embedder
        self._episodes = episodes
        self._settings = settings or Settings()
        self._keep = keep
        self._record = record

    @property
    def name(self) -> str:
        return f"notebook:{self._policy.name}"

    def reads(self, trajectory: Trajectory, *, label_free: bool = False) -> str:
        """Return the errors where rules write, else all of a failed episode."""
        return errors_of(trajectory) if self._settings.writer == "rules" else trajectory.text()

    async def curate(self, reflections: Sequence[Reflection], view: KnowledgeView) -> tuple[DeltaOp, ...]:
        """Return the reflections' tags, then one op for each group of notes, in order of the failures."""
        failures = await self._failures(reflections)
        found = [
            item
            for batch in failure_clusters.batches(failures, self._settings.batch)
            for item in failure_clusters.cluster(batch, self._embedder, self._settings.distance)
        ]
        by_rules = self._settings.writer == "rules"
        written = plain_notes(found) if by_rules else await write_notes(self._policy, found)
        for item in written:
            self._keep_all(item.kept(f"{self.name}:note"))
        groups = group(written, view, self._embedder, k=self._settings.neighbours, threshold=self._settings.similarity)
        ops = await asyncio.gather(*(self._op(members) for members in groups))
        return tuple({op.op_id: op for op in (*tag_ops(reflections, view), *ops)}.values())

    async def _failures(self, reflections: Sequence[Reflection]) -> list[Failure]:
        """Return the failures of the cohort. An episode that is not in the journal is a missing one."""
        label_free = self._settings.label_free
        unique = {reflection.trajectory_id: reflection for reflection in reflections}
        episodes = {key: trajectory for key in unique if (trajectory := self._episodes.find(key)) is not None}
        faults = {key: tuple(self._episodes.faults(trajectory)) for key, trajectory in episodes.items()}
        judge = (self._episodes.judge or self._policy) if label_free else None
        found = {f.trajectory_id: f for f in await find_failures(tuple(episodes.values()), judge)}
        findings = [found.get(key) or _lost(reflection) for key, reflection in unique.items()]
        if findings:
            self._record(audit(findings, judge.name if judge else "reward"))
        self._keep_all([_unjudged(finding, f"{self.name}:judge") for finding in findings if finding.raw])
        return [
            failure_of(episodes[key], finding, unique[key], label_free=label_free, faults=faults[key])
            for finding in findings
            if not finding.missing and (finding.failed or faults[finding.trajectory_id])
            for key in (finding.trajectory_id,)
        ]

    async def _op(self, members: Group) -> DeltaOp:
        """Return the delta of a group. Where the policy's merge is unusable the notes are joined without it."""
        notes = members.notes()
        note = notes[0]
        if len(notes) > 1 and self._settings.writer == "rules":
            note = joined(members)
        elif len(notes) > 1:
            answer = await merged(self._policy, members)
            self._keep_all(answer.kept(f"{self.name}:merge"))
            note = answer.note or joined(members)
        failures = [failure for item in members.written for failure in item.failures]
        return op_of(
            members,
            note,
            Provenance(
                trust=Trust.SELF_JUDGED if self._settings.label_free else Trust.VERIFIED,
                trajectory_ids=tuple(dict.fromkeys(failure.trajectory_id for failure in failures)),
                task_ids=tuple(dict.fromkeys(failure.task_id for failure in failures)),
                author=self.name,
            ),
        )

    def _keep_all(self, reflections: Sequence[Reflection]) -> None:
        for reflection in reflections:
            self._keep(reflection)


def _lost(reflection: Reflection) -> Finding:
    return Finding(
        trajectory_id=reflection.trajectory_id,
        task_id=reflection.task_id,
        failed=True,
        missing=True,
        reason="the episode is not in the journal",
    )


def _unjudged(finding: Finding, author: str) -> Reflection:
    return Reflection(
        trajectory_id=finding.trajectory_id, task_id=finding.task_id, raw=finding.raw, parsed=False, author=author
    )


_VERB = re.compile(r"\s+(?:must|should|it must|needs?|wants?|requires?|has to|is|are)\b.*", re.DOTALL)


def plain_notes(clusters: Sequence[Cluster]) -> list[Written]:
    """Return what came of each cluster, in order."""
    return [plain_note(cluster) for cluster in clusters]


def plain_note(cluster: Cluster) -> Written:
    """Return the note of a cluster: as many of its lessons as fit, those drawn most often first."""
    lessons = (one_line(neutral(lesson)) for failure in cluster.failures for lesson in failure.lessons)
    drawn = [lesson for lesson in lessons if said(lesson)]
    ranked = sorted(dict.fromkeys(drawn), key=lambda lesson: (-drawn.count(lesson), drawn.index(lesson)))
    kept = _fitting(ranked)
    if not kept:
        return Written(note=None, failures=cluster.failures, raw="no lesson to write a note from", usage=Usage())
    topics = list(dict.fromkeys(map(_topic, kept)))
    complaints = (text for failure in cluster.failures for text in failure.complaints if said(text))
    draft = NoteDraft(
        subject=", ".join(topics),
        corrected_examples=(f"Right: {kept[0]}",),
        correct_approach="; ".join(kept),
        mistake_summary=next(complaints, f"{topics[0]} was not as it has to be"),
        strategy=f"Before {topics[0]} is used, check what is noted here.",
        anti_patterns=(f"the task has nothing to do with {topics[0]}",),
    )
    return Written(note=note_of(draft, cluster.trajectory_ids), failures=cluster.failures, raw="", usage=Usage())


def _fitting(lessons: Sequence[str]) -> list[str]:
    """Return the first lessons that the correct approach holds."""
    kept: list[str] = []
    for lesson in lessons:
        if sum(map(words, kept)) + words(lesson) <= LIMITS["correct_approach"]:
            kept.append(lesson)
    return kept


def _topic(lesson: str) -> str:
    """Return what a lesson is about: the words before its verb, without a colon (`mail.send priority`)."""
    head = _VERB.sub("", lesson).replace(":", "").strip()
    return " ".join((head if said(head) else lesson).split()[:6])
