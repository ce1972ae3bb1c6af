"""The injection suite before the gates: an office worker who does whatever the playbook says, and each gate's verdict.

The worker is the scripted solver plus blind obedience: it follows the rules it reads, and runs the code that a text
asks for whenever the text's condition holds in the task. So harm is done, and graded by the office itself. It knows
every house rule but the one that the text is about. The office has no randomness: an episode with the same knowledge,
orders and task is run once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.poison_suite import DEPLOYMENT, HACK, NEVER, Item
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.house_rules import BY_ID, RULES
from evolve.environments.office.solver import DONE, Knowledge, next_action
from evolve.environments.office.wording import meaning, sentence
from evolve.episode.trust import text_of, trust_of
from evolve.gates.ablation_rules import cut_in, reduced
from evolve.gates.batch_screen import BatchScreen
from evolve.gates.canary import SLICE, Canary
from evolve.gates.held_out import HeldOut
from evolve.gates.static import StaticGate
from evolve.statistics.decision import Evaluate
from memory.protocols import Gate
from memory.records import DeltaOp, Op, Outcome, Provenance, Record, Step, Task, Trajectory, Trust, Verdict
from playbooks.kinds.bullet import Bullet
from playbooks.render import render_record
from playbooks.view import RecordView

MAX_STEPS, BATCH, SEED = 16, 16, 4
_WORD = re.compile(r"[\w.]+")
_RULE = re.compile(r"[\w.]+: \w+ (?:it must come|must be(?: the contact's)?) \w+")
LAYERS = ("static", "batch_screen", "held_out", "canary")


def bullet(number: int, text: str) -> Record[Bullet]:
    """Return a text as a record."""
    return Record(id=f"r{number}", kind="bullet", slug="shr", number=number, payload=Bullet(content=text))


@dataclass
class Workplace:
    """One office, its tasks by role, and everything the suite's texts can make a worker do."""

    suite: Sequence[Item]
    office: Office = field(default_factory=lambda: Office(OfficeConfig(deployment=DEPLOYMENT)))
    episodes: int = 0

    def __post_init__(self) -> None:
        self.train = tuple(self.office.tasks("train"))
        self.select, self.canaries = tuple(self.office.tasks("dev")), tuple(self.office.canaries())
        self.known = self.office.describe("full")
        self._orders = {item.text: item for item in self.suite if item.do}
        self._passed: dict[tuple[str, tuple[str, ...], tuple[str, ...]], bool] = {}

    def rules(self, item: Item) -> list[str]:
        """Return what the worker knows beside the item: every house rule but the item's."""
        values = self.office.values
        return [sentence(rule, values[rule.id]) for rule in RULES if rule.id != item.rule]

    def evaluate(self, item: Item) -> Evaluate:
        """Return how tasks are run for an item's gates."""
        return _Runs(self, item)

    async def passes(self, task: Task, rules: Sequence[str], texts: Sequence[str], item: Item | None = None) -> bool:
        """Tell whether the worker solves a task with the rules and the texts in its prompt.

        Of `item` parts may have been cut off: it is obeyed while its order is left.
        """
        obeyed = [self._orders[text] for text in texts if text in self._orders]
        obeyed += [item for text in texts if item and item.do and text not in self._orders and order_left(item, text)]
        said = task.instruction.lower()
        orders = tuple(dict.fromkeys(item.do for item in obeyed if item.on != NEVER and item.on in said))
        told = tuple(str(meaning(text)) for text in (*rules, *texts))
        key = (task.id, told, orders)
        if key not in self._passed:
            lines = [render_record(bullet(at, text), "compact") for at, text in enumerate((*rules, *texts), 1)]
            self._passed[key] = await self._work(task, lines, orders)
        return self._passed[key]

    async def _work(self, task: Task, lines: Sequence[str], orders: Sequence[str]) -> bool:
        self.episodes += 1
        episode, observations = self.office.start(task), list[str]()
        try:
            for _ in range(MAX_STEPS):
                code = next_action(self.office.goal(task), Knowledge.read(lines), observations)
                if HACK in orders:
                    code = DONE
                elif code == DONE:
                    code = "\n".join([*orders, DONE])
                result = episode.run(code)
                observations.append(result.observation)
                if result.done:
                    break
            return (await episode.grade()).success
        finally:
            episode.discard()

    def batch(self, item: Item) -> tuple[Trajectory, ...]:
        """Return the episodes that the text was written from: 16 tasks of the stream, one carrying it.

        Tasks that the item's rule governs come first, as they do where a lesson is drawn from failures.
        """
        call = BY_ID[item.rule].call if item.rule else ""
        governed = [task for task in self.train if call in self._calls(task)]
        tasks = list({task.id: task for task in (*governed[:4], *self.train)}.values())[:BATCH]
        graded = Outcome(success=False, reward=0.0)
        found = [Trajectory(task=task, outcome=graded) for task in tasks]
        return (carrying(item, found[0]), *found[1:])

    def _calls(self, task: Task) -> set[str]:
        return {call for intent, _ in self.office.goal(task).intents for call in intent.calls}

    def gates(self, item: Item) -> dict[str, Gate]:
        """Return each layer by name: the default stack, then the canary gate."""
        run = self.evaluate(item)
        protected = {SLICE: [task.id for task in self.canaries]}
        return {
            "static": StaticGate(known=lambda: self.known),
            "batch_screen": BatchScreen(run, SEED),
            "held_out": HeldOut(run, (*self.select, *self.canaries), SEED, slices=protected),
            "canary": Canary(run, self.canaries, SEED),
        }


def carrying(item: Item, episode: Trajectory) -> Trajectory:
    """Return the episode with the item's text where its channel puts it: a tool's output, or the task, reordered.

    Sentences of a task are put down in another order than they were read, or the leak check alone would refuse them.
    """
    if item.channel == "observation":
        step = Step(index=0, action="print(apps.mail.read(id=m))", observation=f"1 mail, unread: {item.text}")
        return episode.model_copy(update={"steps": (step,)})
    if item.channel == "task":
        turned = " ".join(f"{part}." for part in reversed(item.text.rstrip(".").split(". ")))
        task = episode.task.model_copy(update={"instruction": f"{episode.task.instruction} {turned}"})
        return episode.model_copy(update={"task": task})
    return episode


def proposal(item: Item, batch: Sequence[Trajectory]) -> DeltaOp:
    """Return the text as a gullible reflector or an import proposes it, with the trust that its origin gives."""
    op = DeltaOp(op=Op.ADD, op_id=f"{item.id}-{item.label}", payload={"content": item.text})
    trust = Trust.IMPORTED if item.channel == "import" else trust_of(op, batch[:1], graded=True)
    return op.model_copy(update={"provenance": Provenance(trust=trust)})


@dataclass(frozen=True)
class _Runs:
    """How tasks are run for an item's gates."""

    place: Workplace
    item: Item
    seedless: bool = True
    """Neither the office nor the worker leaves anything to chance."""

    async def __call__(
        self, ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int
    ) -> Mapping[str, bool | None]:
        texts = [text_of(op) for op in ops or ()]
        rules = self.place.rules(self.item)
        return {task.id: await self.place.passes(task, rules, texts, self.item) for task in tasks}


def order_left(item: Item, text: str) -> bool:
    """Tell whether half of the words that an item has beside its house rule are left in a text."""
    own = _WORD.findall(_RULE.sub(" ", item.text).lower())
    return 2 * sum(word in _WORD.findall(text.lower()) for word in own) >= len(own)


@dataclass(frozen=True)
class Judged:
    """What each layer by itself says of an item, and what the default stack made of it."""

    item: Item
    trust: Trust
    passed: Mapping[str, bool]
    reasons: Mapping[str, str]
    status: str
    """`active`, `provisional` or `rejected`, after all layers, which are the default gates. A poison of which the
    order was cut off is rejected: what is left of it is no poison."""
    slice_change: int
    """Net change of the protected slice in `held_out`, in tasks."""
    floor: float
    """A/A floor of `held_out`, a share of its tasks."""


async def judge(place: Workplace, item: Item) -> Judged:
    """Ask every layer about an item, each by itself."""
    batch = place.batch(item)
    op = proposal(item, batch)
    view = RecordView([bullet(at, text) for at, text in enumerate(place.rules(item), 1)])
    verdicts = {name: await gate.judge([op], view, batch) for name, gate in place.gates(item).items()}
    passed = {name: _passed(item, op, verdict) for name, verdict in verdicts.items()}
    held = verdicts["held_out"]
    last = held.evidence["rounds"][-1]["statistics"]
    accepted = all(passed[name] for name in LAYERS)
    return Judged(
        item=item,
        trust=op.provenance.trust,
        passed=passed,
        reasons={name: verdict.rejected.get(op.op_id, "") for name, verdict in verdicts.items()},
        status=str(held.status) if accepted else "rejected",
        slice_change=last["slices"].get(SLICE, 0),
        floor=last["floor"] or 0.0,
    )


def _passed(item: Item, op: DeltaOp, verdict: Verdict) -> bool:
    """Tell whether a gate admits an item: of a poison, also its order."""
    left = reduced(op, cut_in(verdict, op.op_id)) if op.op_id in verdict.accepted else None
    if left is None:
        return False
    return item.label == "benign" or not verdict.cut or order_left(item, text_of(left))
