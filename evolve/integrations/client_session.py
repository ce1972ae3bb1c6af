"""One outside client's session on a workspace, over MCP or REST: one run, on the two halves of `evolve.Agent`.

What a client reports is stored as an episode and credits what it was shown, as the loop does. Nothing is reflected on:
what an outsider says of its own success teaches nothing by itself. Its lessons come through `propose`; they are
quarantined as imported text is, whatever the gates say, until `evolve playbook test` or a person admits them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from evolve.config.model import Config
from evolve.episode.injection import Shown, choose_core, injection_of, recall_for, sought
from evolve.episode.prompting import knowledge, learned
from evolve.episode.skill_runtime.shown_skills import text_kinds, texts
from evolve.gates.online_ab import OnlineAB
from evolve.gates.review_queue import Standing
from evolve.gates.stack import RUNS_TASKS, expanded
from evolve.integrations.agent import Agent, Asked, hosted, without_conversation
from evolve.integrations.client_answers import Done, Hit, Playbook, Recorded, SkillShown
from evolve.integrations.client_limits import Limits
from evolve.lookup import find_records, find_skill
from evolve.loop.runs import MCP
from evolve.seeds import id_for
from memory.errors import BadInput, NotFound
from memory.fusion import within_budget
from memory.kinds import payload_class
from memory.operations import op_id
from memory.records import (
    RECALLABLE,
    Check,
    Event,
    Frozen,
    Injection,
    Outcome,
    Recalled,
    RecallQuery,
    Record,
    Step,
    Task,
    Trajectory,
    Trust,
)
from memory.runlist import OPENED
from memory.snapshots import name_now
from memory.store import Store
from playbooks.core import core_records
from playbooks.formats.entry import Entry, import_ops
from playbooks.kinds.bullet import DEFAULT_SECTION, Bullet
from playbooks.ranking import rank_key
from playbooks.render import neutral
from playbooks.similarity import exact_key
from playbooks.view import RecordView
from policies.scripted import ScriptedPolicy

CLOSED = "session.closed"
MOST = 100
"""Records that one search returns at most, tasks under way of which what was shown is remembered, and records that
were found since the last outcome."""


class Layer(Frozen):
    """A namespace that is read below a client's own: a team's below a user's, everybody's below a team's."""

    namespace: str
    tokens: int
    """Most tokens of it in one playbook."""


class ClientSession:
    """An async context manager. `store` stays open; without `writes` nothing is journalled and nothing can be told."""

    def __init__(
        self,
        config: Config,
        store: Store,
        *,
        kind: str = MCP,
        writes: bool = True,
        limits: Limits | None = None,
        layers: Sequence[Layer] = (),
    ) -> None:
        """Take the workspace. `kind`: that of the run, over which way the client comes.

        Of `layers` only what is known is shown, under labels that begin with the namespace (`team/shr-00012`). It may
        be cited, and nobody is credited: what is known there is others' to measure.
        """
        self.limits = limits or Limits()
        self._config, self._store, self._kind = visiting(config), store, kind
        self._agent = hosted(self._config, kind=kind, store=store) if writes else None
        self._namespace, self._layers = config.memory.namespace, layers
        self.holder = ""
        """Who holds the client's token; what it calls itself stands behind that."""
        self._client = ""
        self._asked: dict[str, Asked] = {}
        self._found: dict[str, Injection] = {}

    @property
    def run_id(self) -> str:
        """The run that the session is in the journal; empty when it only reads."""
        return self._agent.run_id if self._agent else ""

    async def __aenter__(self) -> ClientSession:
        if self._agent:
            await self._agent.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._agent:
            await self._agent.__aexit__(kind, error, trace)
            if self._client:
                self._journal(CLOSED, {})

    def greet(self, client: str, transport: str) -> None:
        """Journal who visits, once."""
        if self._agent and not self._client:
            self._client = f"{self.holder} {client}".strip()
            self._agent.begin(self._client)
            self._journal(OPENED, {"client": self._client, "transport": transport})

    async def search(self, query: str, kinds: Sequence[str], k: int) -> tuple[Hit, ...]:
        """Return the records nearest to a text."""
        for kind in kinds:
            payload_class(kind)
        if not 1 <= k <= MOST:
            raise BadInput(f"got k={k!r}, expected 1 to {MOST}; ask for fewer records")
        await self._embed(query)
        wanted = RecallQuery(text=query, namespace=self._namespace, kinds=tuple(kinds), k=k)
        below = [each for layer in self._layers for each in self._recalled_below(layer, wanted)]
        shown = sorted([*self._store.recall(wanted), *below], key=lambda item: -item.scores["rrf"])[:k]
        for item in shown:
            if item.record.namespace == self._namespace:
                self._found.setdefault(item.record.id, injection_of(item.record, item.rank, item.scores))
        while len(self._found) > MOST:
            del self._found[next(iter(self._found))]
        return tuple(
            Hit(
                id=item.record.label,
                kind=item.record.kind,
                text=neutral(item.record.payload.text()),
                tokens=item.tokens,
                scores=item.scores,
            )
            for item in shown
        )

    async def playbook(self, task: str) -> Playbook:
        """Return what the loop would show for a task; without one, every text in use."""
        await self._embed(task)
        if not task.strip():
            shown = Shown(core=texts(self._store.view(self._namespace)))
        elif self._agent:
            self._asked[task] = await self._agent.ask(self._task(task))
            while len(self._asked) > MOST:
                del self._asked[next(iter(self._asked))]
            shown = self._asked[task].shown
        else:
            shown = self._read(self._task(task))
        recalled = (*shown.recalled, *self._below(task, (*shown.core, *shown.recalled)))
        text = learned(knowledge(shown.core, recalled, "full"))
        if self._agent:
            snapshot = self._store.snapshot(self._namespace).id  # its place in the journal counts what others write
        else:
            snapshot = name_now(self._store.journal, self._namespace)
        return Playbook(
            text=text,
            tokens=self._store.count_tokens(text),
            ids=tuple(record.label for record in (*shown.core, *recalled)),
            snapshot=snapshot,
            session=self.run_id,
        )

    def skill(self, name: str) -> SkillShown:
        """Return one skill by name, label or number; one of a layer by its label here (`team/skill-00001`)."""
        below, label = self._split(name)
        if below is None:
            raise NotFound(f"no skill {name!r} here; search gives the labels of those that there are")
        record = find_skill(self._store, below or self._namespace, label)
        if record.status not in RECALLABLE:
            raise NotFound(f"skill {name!r} is {record.status}, and in use is none of that name; search finds those")
        return SkillShown(
            id=f"{below}/{record.label}" if below else record.label,
            name=record.payload.name,
            code=record.payload.source,
            docstring=neutral(record.payload.text()),
            status=record.status.value,
            requires=record.payload.requires,
            counters=record.usage.model_dump(),
        )

    async def record(
        self, task: str, steps: Sequence[Done], success: bool | None, feedback: str, cited: Sequence[str]
    ) -> Recorded:
        """Store what became of a task, and credit what was shown and cited."""
        agent = self._writing()
        if not task.strip() or not steps:
            raise BadInput(
                f"got task {task!r} and {len(steps)} steps; expected a task and at least one step in `steps`, each "
                "with `action`, and `observation` or `error` as they came back"
            )
        if success is None and feedback:
            raise BadInput("got feedback without success; say success true or false as well, or leave feedback out")
        followed = self._followed(cited)
        named = [record for _, record in followed if record is not None]
        asked = self._asked.pop(task, None) or await agent.ask(self._task(task), memory=False)
        found = self._found | {r.id: injection_of(r, 0) for r in named if r.id not in self._found}
        self._found = {}
        given = Trajectory(
            task=asked.task,
            steps=_steps(steps, named),
            outcome=_outcome(success, feedback),
            injected=tuple(found.values()),
            policy=self._client,
        )
        try:
            stored = await agent.learn(asked, given)
        except BaseException:  # whoever tells it once more credits the same, and it is the same episode
            self._asked[task], self._found = asked, found | self._found
            raise
        return Recorded(
            episode=stored.id,
            session=self.run_id,
            shown=tuple(item.label for item in stored.injected),
            cited=tuple(record.label if record else name.strip().strip("[]") for name, record in followed),
        )

    async def propose(self, lesson: str, section: str, when: str) -> Standing:
        """Put a lesson before the gates. At best it is quarantined, or waits for a person."""
        agent = self._writing()
        if not lesson.strip():
            raise BadInput(f"got lesson {lesson!r}; expected a sentence that helps with other tasks too")
        bullet = Bullet(section=section or DEFAULT_SECTION, content=lesson, when=when)
        await self._embed(bullet.key())
        (op,) = import_ops([Entry(bullet=bullet)], f"{self._kind}:{self._client}")
        op = op.model_copy(update={"op_id": op_id("propose", self._namespace, op.op_id)})
        trusted = op.provenance.model_copy(update={"run_id": self.run_id, "author": self._client or self._kind})
        (answer,) = await agent.propose([op.model_copy(update={"provenance": trusted})])
        return answer

    async def _embed(self, text: str) -> None:
        """Embed a text beside the event loop, which answers others meanwhile. Who asks for its vector next has it."""
        if text.strip():
            await asyncio.to_thread(self._store.embedder.embed, [text])

    def _writing(self) -> Agent:
        if self._agent is None:
            raise BadInput(
                "got a call that writes, and this client may only read (a server started with --read-only, or a token "
                "without scope `report`); expected search, get_playbook or get_skill: ask its operator for more"
            )
        return self._agent

    def _read(self, task: Task) -> Shown:
        policy = ScriptedPolicy((), name="none")
        view = self._store.view(self._namespace)
        core = choose_core(self._config, view, policy, 0)
        records = core_records(core, RecordView(view.records()))
        return recall_for(self._store, self._config, sought(task), records, policy)

    def _below(self, task: str, above: Sequence[Record[Any]]) -> tuple[Record[Any], ...]:
        """Return what the layers show for a task, each within its tokens, without what stands above it.

        What is pinned in a layer goes first, then what the task recalls; without a task it is every text in use.
        """
        said = {exact_key(record.payload.text()) for record in above}
        found: list[Record[Any]] = []
        kinds = text_kinds(self._config)
        for layer in self._layers:
            known = texts(self._store.view(layer.namespace))
            always = [record for record in known if record.pinned or not task.strip()]
            new = sorted((r for r in always if exact_key(r.payload.text()) not in said), key=rank_key)
            tokens = [self._store.count_tokens(record.payload.text()) for record in new]
            kept = within_budget(tokens, layer.tokens)
            shown = [_labelled(new[at], layer) for at in kept]
            left = layer.tokens - sum(tokens[at] for at in kept)
            if task.strip() and left and kinds and self._config.memory.recall_k:
                wanted = RecallQuery(
                    text=task,
                    kinds=kinds,
                    k=self._config.memory.recall_k,
                    token_budget=left,
                    exclude_ids=tuple(record.id for record in always),
                )
                shown += [item.record for item in self._recalled_below(layer, wanted)]
            for record in shown:
                key = exact_key(record.payload.text())
                found += [record] if key not in said else []
                said.add(key)
        return tuple(found)

    def _recalled_below(self, layer: Layer, wanted: RecallQuery) -> list[Recalled]:
        """Return what a layer recalls, under the labels that it has here."""
        found = self._store.recall(wanted.model_copy(update={"namespace": layer.namespace}))
        return [item.model_copy(update={"record": _labelled(item.record, layer)}) for item in found]

    def _split(self, name: str) -> tuple[str | None, str]:
        """Return the layer that a name begins with, and the name there; empty = no layer, None = an unknown one."""
        below, _, label = name.rpartition("/")
        return below if below in {"", *(layer.namespace for layer in self._layers)} else None, label

    def _followed(self, cited: Sequence[str]) -> list[tuple[str, Record[Any] | None]]:
        """Return cited ids with their records; None for one of a layer, which nobody is credited with."""
        places = {name: self._split(name.strip().strip("[]")) for name in cited}
        asked: dict[str, set[str]] = {}
        for below, label in places.values():
            if below is not None:
                asked.setdefault(below, set()).add(label)
        there = {below: find_records(self._store, below or self._namespace, asked[below]) for below in asked}
        followed: list[tuple[str, Record[Any] | None]] = []
        for name in cited:
            below, label = places[name]
            record = None if below is None else there[below].get(label)
            if record is None or record.status not in RECALLABLE:
                raise NotFound(f"got cited id {name!r}, expected one that search or get_playbook gave; leave it out")
            followed.append((name, None if below else record))
        return followed

    def _task(self, text: str) -> Task:
        return Task(id=id_for("task", text), instruction=text, environment=self._kind)

    def _journal(self, kind: str, data: dict[str, Any]) -> None:
        event = Event(type=kind, namespace=self._namespace, run_id=self.run_id, subject=self.run_id, data=data)
        self._store.append(event)


def visiting(config: Config) -> Config:
    """Return the configuration of a session: no model is asked, no task is run, and what is proposed is quarantined.

    Nothing is tried on a client's tasks either (`online_ab`): what it reports decides about nothing.
    """
    names = expanded(config.gate.names, live=True, graded=not config.run.label_free)
    gates = tuple(name for name in names if name not in RUNS_TASKS | {OnlineAB.name})
    floor = config.gate.trust if config.gate.trust.reaches(Trust.SELF_JUDGED) else Trust.SELF_JUDGED
    return without_conversation(config).model_copy(
        update={
            "run": config.run.model_copy(update={"judge": "none"}),
            "playbook": config.playbook.model_copy(update={"reflector": "none", "curator": "direct"}),
            "gate": config.gate.model_copy(update={"names": gates, "trust": floor}),
        }
    )


def _labelled(record: Record[Any], layer: Layer) -> Record[Any]:
    """Return a record of a layer under the label that it has in a playbook above it."""
    return record.model_copy(update={"slug": f"{layer.namespace}/{record.slug}"})


def _outcome(success: bool | None, feedback: str) -> Outcome | None:
    if success is None:
        return None
    checks = (Check(name="feedback", passed=success, detail=feedback),) if feedback else ()
    return Outcome(success=success, reward=float(success), checks=checks)


def _steps(done: Sequence[Done], named: Sequence[Record[Any]]) -> tuple[Step, ...]:
    """Return the steps; the last that worked (or the last) names what is cited, as a reply of the loop would."""
    steps = [Step(index=at, action=d.action, observation=d.observation, error=d.error) for at, d in enumerate(done)]
    if named:
        at = next((step.index for step in reversed(steps) if step.error is None), len(steps) - 1)
        cites = "".join(f" [{record.label}]" for record in named)
        steps[at] = steps[at].model_copy(update={"reply": f"{steps[at].action}\n{cites.strip()}"})
    return tuple(steps)
