"""Trust in a proposed text, from where it came from: recorded episodes, never what it says of itself.

The ladder is `memory.records.Trust`. A text written after an episode was graded ranks above one nobody graded, one
whose author was shown what strangers can have written ranks below both, in whatever words (`evolve.episode.taint`), and
one that repeats what a tool printed or a task said ranks below everything. The environment's error messages are its own
voice and are not counted as printed. What stands inside of a function may repeat its task: that is what it does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from memory.errors import BadInput
from memory.kinds import payload_class
from memory.records import DeltaOp, Payload, Trajectory, Trust
from playbooks.kinds.exemplar import Exemplar
from skills.prose import prose
from skills.record import Skill

RUN = 4
"""Words in a row that count as repeated."""
SHARE = 0.5
"""Share of a text's runs from which all of it is a quotation."""

_WORD = re.compile(r"\w+")
_COMMENT = re.compile(r"^\s*#+", re.MULTILINE)


def trust_of(op: DeltaOp, episodes: Sequence[Trajectory], *, graded: bool, tainted: bool = False) -> Trust:
    """Return the trust of an op that was written from `episodes`.

    `graded` says whether outcomes could be read, `tainted` whether its author was shown text of strangers.
    """
    if _is_quoted(text_of(op), episodes) or any(_is_quoted(text, episodes, asked=False) for text in texts_of(op)):
        return Trust.QUOTED
    if tainted:
        return Trust.TAINTED
    verified = graded and all(trajectory.outcome is not None for trajectory in episodes)
    return Trust.VERIFIED if verified else Trust.SELF_JUDGED


def text_of(op: DeltaOp) -> str:
    """Return the text that the op would show in prompts; empty where its payload is none of its kind."""
    payload = payload_of(op)
    return payload.text() if payload else ""


def texts_of(op: DeltaOp) -> tuple[str, ...]:
    """Return `text_of`, and of a skill the texts in its code, which is shown on demand; nothing empty.

    Of an exemplar each text by itself, without the marks of comments: `# input` is no heading there.
    """
    payload = payload_of(op)
    if isinstance(payload, Exemplar):
        return tuple(filter(None, (_COMMENT.sub("", text) for text in payload.texts())))
    texts = [payload.text() if payload else "", *(prose(payload) if isinstance(payload, Skill) else ())]
    return tuple(filter(None, texts))


def payload_of(op: DeltaOp) -> Payload | None:
    """Return what the op would store, or None where its payload is none of its kind."""
    try:
        return payload_class(op.kind).model_validate(op.payload)
    except (BadInput, ValidationError):
        return None


def _is_quoted(text: str, episodes: Sequence[Trajectory], *, asked: bool = True) -> bool:
    """Tell whether tools, and with `asked` tasks, said most of the text's runs of words; it has one at least."""
    said = list(runs(text))
    tasks = {run for episode in episodes for run in runs(episode.task.instruction)} if asked else set[tuple[str, ...]]()
    printed = {run for episode in episodes for step in episode.steps for run in _printed(step.observation, step.error)}
    return bool(said) and sum(run in tasks or run in printed for run in said) >= SHARE * len(said)


def _printed(observation: str, error: str | None) -> Iterator[tuple[str, ...]]:
    parts = observation.split(error) if error else [observation]
    return (run for part in parts for run in runs(part))


def runs(text: str) -> Iterator[tuple[str, ...]]:
    """Yield all runs of `RUN` words of a text, lower-cased."""
    words = [word.lower() for word in _WORD.findall(text)]
    return (tuple(words[at : at + RUN]) for at in range(len(words) - RUN + 1))
