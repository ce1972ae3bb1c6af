"""Gate `static`: what can be refused by reading alone, without running a task.

Schema, length, section, exact and near duplicates and forged headers are `playbooks.delta_checks.validate`; what hides,
poses or points outside is `playbooks.suspicious_text.refusal`; what says nothing of the world is `evolve.episode.echo`.
Here comes the leak check: a text that repeats a long run of words from a task is about that task, not about the world,
unless many tasks have those words: tickets and forms are written from a template. An operator's own words are not read
for content.

An exemplar repeats its own task, which is what it is for. Tasks of held-out splits it may neither be nor quote: a
frozen evaluation would hand out its own answers (`ExemplarGate`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from itertools import islice

from pydantic import Field, ValidationError

from evolve.config.model import Config
from evolve.config.tables import Section
from evolve.episode.echo import echo
from evolve.episode.trust import payload_of, text_of, texts_of
from evolve.gates.context import GateContext
from memory.content import canonical
from memory.protocols import Gate, KnowledgeView
from memory.records import FROM_OUTSIDE, DeltaOp, Trajectory, Trust, Verdict
from playbooks.delta_checks import Rules, validate
from playbooks.kinds.exemplar import Exemplar
from playbooks.suspicious_text import refusal
from skills.record import Skill
from skills.skill_gate import SkillGate

CHARS_A_TOKEN = 4
"""As tokens are counted without a tokenizer (`policies.tokens`)."""
LONGEST = 50_000
"""Characters of a payload as JSON. Kinds have shorter limits of their own."""
TEMPLATE = 5
"""Tasks with the same words from which these belong to no one task. More than the three of a scenario."""


class Options(Section):
    """What is refused by reading alone."""

    allow: tuple[str, ...] = ()
    """Addresses, and literals in text of little trust, that may be learned beside those the environment describes."""
    leak_ngram: int = Field(default=8, ge=3)
    """A text that repeats this many words of a task in a row is refused as a leak."""
    max_chars: int = Field(default=Rules().max_chars, ge=1)
    """Longest content."""
    near_duplicate: float = Field(default=Rules().near_duplicate, gt=0, le=1)
    """TF-IDF cosine from which a new text repeats an old one."""


class StaticGate:
    """Accepts what is well-formed, new and general. Admits as provisional: nothing was measured.

    `known` names the addresses and literals that texts may name, `trust` the least trust that is not read strictly.
    `tasks` returns the instructions that there are, beside those of the episodes: by them a template is known.
    `kinds` are gates that read kinds of their own (kind -> gate): what they refuse is refused. Of such a payload what
    prompts show is read here; of a skill also docstring, comments and literals, which are shown on demand. What code of
    little trust may do is for its own gate (`skills.skill_gate`), what it achieves for the gates that run tasks.
    """

    name = "static"

    def __init__(
        self,
        rules: Rules | None = None,
        leak_ngram: int = Options().leak_ngram,
        *,
        known: Callable[[], str] = str,
        trust: Trust = Trust.SELF_JUDGED,
        kinds: Mapping[str, Gate] | None = None,
        tasks: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._rules = rules or Rules()
        self._n = leak_ngram
        self._known, self._trust = known, trust
        self._kinds = kinds or {}
        self._tasks = tasks

    async def judge(self, ops: Sequence[DeltaOp], view: KnowledgeView, trajectories: Sequence[Trajectory]) -> Verdict:
        """Return a verdict with a reason for every op refused."""
        rejected = _too_long(ops)
        clean: list[DeltaOp] = []
        short = [op for op in ops if op.op_id not in rejected]
        for gate in self._kinds.values():
            rejected |= (await gate.judge(short, view, trajectories)).rejected
        for op in (each for each in ops if each.op_id not in rejected):
            reason = self._leak(op, trajectories) or self._echo(op, trajectories) or self._content(op)
            if reason:
                rejected[op.op_id] = reason
            else:
                clean.append(op)
        checked = validate(clean, view, rules=self._rules)
        accepted = tuple(op.op_id for op in checked.accepted)
        evidence = {"leak_ngram": self._n, "rules": self._rules.model_dump(mode="json"), "view": view.version}
        return Verdict(gate=self.name, accepted=accepted, rejected=rejected | checked.rejected, evidence=evidence)

    def _content(self, op: DeltaOp) -> str:
        trust = op.provenance.trust
        if trust is Trust.OPERATOR:
            return ""
        known, strict = self._known(), trust in FROM_OUTSIDE and not trust.reaches(self._trust)
        found = (refusal(text, known, strict=strict and text == text_of(op)) for text in texts_of(op))
        return next(filter(None, found), "")

    def _echo(self, op: DeltaOp, trajectories: Sequence[Trajectory]) -> str:
        payload = None if op.provenance.trust is Trust.OPERATOR else payload_of(op)
        return echo(payload, trajectories, self._n) if payload else ""

    def _leak(self, op: DeltaOp, trajectories: Sequence[Trajectory]) -> str:
        """Return which task's words the op's text repeats, or an empty text."""
        if op.payload is None or op.kind == Exemplar.kind:  # which repeats its task; `ExemplarGate` reads it
            return ""
        own = op.kind in self._kinds
        text = "\n".join(texts_of(op)) if own else str(op.payload.get("content", "")) or repr(op.payload)
        said = set(ngrams(text, self._n))
        for trajectory in trajectories:
            for shared in sorted(said & set(ngrams(trajectory.task.instruction, self._n))):
                quote = " ".join(shared)
                if self._is_template(quote, trajectories):
                    continue
                return f"repeats task {trajectory.task.id!r} word for word ({quote!r}); say what holds for other tasks"
        return ""

    def _is_template(self, words: str, trajectories: Sequence[Trajectory]) -> bool:
        """Tell whether at least `TEMPLATE` tasks hold a run of words."""
        tasks = dict.fromkeys((*(trajectory.task.instruction for trajectory in trajectories), *self._tasks()))
        having = (task for task in tasks if f" {words} " in f" {plain(task)} ")
        return len(list(islice(having, TEMPLATE))) == TEMPLATE


def _too_long(ops: Sequence[DeltaOp]) -> dict[str, str]:
    """Return op id -> why, for what is refused before anything reads it."""
    sizes = {op.op_id: len(canonical(op.payload)) for op in ops if op.payload is not None}
    return {
        key: f"has {size:,} characters; at most {LONGEST:,} are read" for key, size in sizes.items() if size > LONGEST
    }


def options_of(config: Config) -> Options:
    """Return the options of the gate, which others heed as well. Raises `ConfigError` as `read`."""
    return config.gate.of(StaticGate.name, Options)


def make(context: GateContext, options: Options) -> StaticGate:
    """Return the gate, with those of skills and exemplars."""
    known = partial(context.described, options.allow)
    fitting = CHARS_A_TOKEN * context.config.exemplars.token_budget  # a longer exemplar could never be shown
    return StaticGate(
        Rules(
            max_chars=options.max_chars,
            max_exemplar_chars=max(options.max_chars, fitting),
            near_duplicate=options.near_duplicate,
        ),
        options.leak_ngram,
        known=known,
        trust=context.config.gate.trust,
        kinds={
            Skill.kind: SkillGate(known),
            Exemplar.kind: ExemplarGate(context.held_out, options.leak_ngram),
        },
        tasks=context.instructions,
    )


MEMBER = make


_WORD = re.compile(r"\w+")


class ExemplarGate:
    """Refuses what shows a held-out task; `held_out` returns the instructions of all such tasks, and is asked once."""

    name = "exemplar"

    def __init__(self, held_out: Callable[[], Iterable[str]] = tuple, leak_ngram: int = Options().leak_ngram) -> None:
        self._held_out, self._n = held_out, leak_ngram

    async def judge(self, ops: Sequence[DeltaOp], view: KnowledgeView, trajectories: Sequence[Trajectory]) -> Verdict:
        """Return a verdict with a reason for every op refused."""
        own = [op for op in ops if op.kind == Exemplar.kind and op.payload is not None]
        rejected = {op.op_id: reason for op in own if (reason := self._leak(op))}
        accepted = tuple(op.op_id for op in ops if op.op_id not in rejected)
        return Verdict(gate=self.name, accepted=accepted, rejected=rejected, evidence={"view": view.version})

    @cached_property
    def _tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(text for task in self._held_out() if (text := plain(task))))

    @cached_property
    def _runs(self) -> frozenset[tuple[str, ...]]:
        return frozenset(run for task in self._tasks for run in ngrams(task, self._n))

    def _leak(self, op: DeltaOp) -> str:
        try:
            exemplar = Exemplar.model_validate(op.payload)
        except ValidationError as invalid:
            return f"payload is no exemplar: {invalid.errors()[0]['msg']}"
        text = f" {plain(' '.join(exemplar.texts()))} "
        long = (task for task in self._tasks if len(task.split()) >= self._n)
        whole = next((task for task in long if f" {task} " in text), "")
        if whole or plain(exemplar.task) in self._tasks:
            return f"shows a held-out task ({(whole or exemplar.task)[:60]!r}), which figures are taken from"
        more = set(ngrams(text, self._n)) - set(ngrams(exemplar.task, self._n))
        quoted = next((" ".join(run) for run in sorted(more & self._runs)), "")
        return f"quotes a held-out task ({quoted!r}), which figures are taken from" if quoted else ""


@lru_cache(maxsize=4096)
def plain(text: str) -> str:
    """Return the words of a text, lower-cased, with one blank between two."""
    return " ".join(word.lower() for word in _WORD.findall(text))


def ngrams(text: str, n: int) -> list[tuple[str, ...]]:
    """Return all runs of `n` words, lower-cased, without punctuation."""
    words = plain(text).split()
    return [tuple(words[at : at + n]) for at in range(len(words) - n + 1)]
