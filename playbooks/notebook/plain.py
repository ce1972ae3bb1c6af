"""Notes without a model: a cluster's lessons as they are, in the parts of a note. For runs whose policy writes none.

What the reflector learned is the correct approach, what was found wrong is the mistake; strategy and anti-patterns
follow from what the lessons are about. A cluster without a lesson gives no note.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from memory.records import Usage
from playbooks.bullets import one_line
from playbooks.notebook.clusters import Cluster
from playbooks.notebook.drafts import NoteDraft, note_of
from playbooks.notebook.write import Written
from playbooks.notes import LIMITS, words
from playbooks.render import neutral

_VERB = re.compile(r"\s+(?:must|should|it must|needs?|wants?|requires?|has to|is|are)\b.*", re.DOTALL)


def plain_notes(clusters: Sequence[Cluster]) -> list[Written]:
    """Return what came of each cluster, in order."""
    return [plain_note(cluster) for cluster in clusters]


def plain_note(cluster: Cluster) -> Written:
    """Return the note of a cluster: as many of its lessons as fit, those drawn most often first."""
    drawn = [one_line(neutral(lesson)) for failure in cluster.failures for lesson in failure.lessons]
    ranked = sorted(dict.fromkeys(drawn), key=lambda lesson: (-drawn.count(lesson), drawn.index(lesson)))
    kept = _fitting(ranked)
    if not kept:
        return Written(note=None, failures=cluster.failures, raw="no lesson to write a note from", usage=Usage())
    topics = list(dict.fromkeys(map(_topic, kept)))
    complaints = (text for failure in cluster.failures for text in failure.complaints)
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
    return " ".join((head or lesson).split()[:6])
