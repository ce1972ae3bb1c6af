"""BFCL v4 multi-turn as an `Environment`: native tool calls act, an answer in words ends the turn.

Split by scenario number, since the four variants of a number share most of their gold. `seed` changes nothing.

Grades an episode as the benchmark does: after each turn the systems' public state must equal the gold run's, and the
gold responses of the turn must be among the responses so far.

The benchmark's own state and response checkers judge; its executor, which passes text to `eval`, is replaced by
`BfclWorld`.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Sequence
from typing import Any

from evolve.config.tables import Section
from evolve.environments.bfcl.data import VARIANTS, Entry, Variant, entries, functions
from evolve.environments.bfcl.world import BfclWorld
from evolve.protocols import Action, ActionFormat, StepResult
from memory.errors import BadInput, NotFound
from memory.records import Check, Outcome, Task, ToolCall
from policies.protocols import ToolSpec

SIZES = {"train": 80, "dev": 20, "test_normal": 60, "test_challenge": 40}
"""Scenarios (numbers) per split."""

_CLASSES = (
    *("GorillaFileSystem", "MathAPI", "MessageAPI", "TicketAPI"),
    *("TradingBot", "TravelAPI", "TwitterAPI", "VehicleControlAPI"),
)


class BfclConfig(Section):
    """Which tasks."""

    variants: tuple[Variant, ...] = ("base",)
    """Of each scenario in `train`, `dev` and `test_normal`; `test_challenge` always has the three hard ones."""


class Bfcl:
    """Eight simulated systems with 128 functions. Needs `bfcl-eval` (see `data`)."""

    name = "bfcl"
    action_format: ActionFormat = "tools"
    max_steps = 60
    """The longest gold takes 16 calls, and a turn ends by an action, too."""
    seedless = True

    def __init__(self, config: BfclConfig | None = None) -> None:
        self.config = config or BfclConfig()

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """Return all functions; those that a task does not offer answer with an error."""
        return tuple(spec for name in _CLASSES for spec in functions(name))

    def tools_for(self, task: Task) -> tuple[ToolSpec, ...]:
        """Return the functions that a task offers, now or in a later turn."""
        entry = entry_of(task)
        return tuple(spec for name in entry.classes for spec in functions(name) if spec.name not in entry.excluded)

    def describe(self, profile: str) -> str:
        """Return how turns work. The functions themselves are offered natively."""
        return (
            "You serve a user through the functions of some systems. The user speaks in several turns. Do what a turn "
            "asks by calling functions, then end the turn with a short answer in words; the next turn follows. "
            "Functions may be missing at first and arrive later; if a turn cannot be done yet, say so."
        )

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the tasks of a split. Raises `BadInput` for an unknown one and `NotInstalled`."""
        if split not in SIZES:
            raise BadInput(f"bfcl has no split {split!r}; it has {', '.join(SIZES)}")
        variants = VARIANTS[1:] if split == "test_challenge" else self.config.variants
        numbers = _numbers(split)
        return [_task(entries(variant)[number], split) for number in numbers for variant in variants]

    def every_task(self) -> Sequence[Task]:
        """Return all 800 tasks, for checks of the benchmark itself."""
        of = {number: split for split in SIZES for number in _numbers(split)}
        return [_task(entry, of[entry.number]) for variant in VARIANTS for entry in entries(variant)]

    def start(self, task: Task, seed: int = 0) -> BfclEpisode:
        """Return a fresh episode."""
        return BfclEpisode(task)

    def gold(self, task: Task) -> Sequence[Action]:
        """Return the official calls, and an answer in words after each turn."""
        actions = list[Action]()
        for turn in self.gold_calls(task):
            actions += [Action(tool_calls=(call,)) for call in turn]
            actions.append(Action(text="Done."))
        return actions

    def world(self, task: Task) -> BfclWorld:
        """Return the simulated systems of a task as an episode finds them."""
        return BfclWorld(entry_of(task))

    def gold_calls(self, task: Task) -> tuple[tuple[ToolCall, ...], ...]:
        """Return the gold calls of a task, turn by turn."""
        entry, world = entry_of(task), self.world(task)
        return tuple(tuple(world.parse(source) for source in turn) for turn in entry.gold)

    def state_changing(self, task: Task) -> Sequence[int]:
        """Return the indexes of the gold actions that change the public state of a system."""
        world, changing = BfclWorld(entry_of(task)), list[int]()
        for index, action in enumerate(self.gold(task)):
            for call in action.tool_calls:
                before = world.state()
                world.call(call.name, call.arguments)
                if world.state() != before:
                    changing.append(index)
        return changing

    def extra_write(self, task: Task) -> Action:
        """Return a write that no task asks for, and that changes the state which the gold leaves behind."""
        world = BfclWorld(entry_of(task))
        for action in self.gold(task):
            for call in action.tool_calls:
                world.call(call.name, call.arguments)
        before = world.state()
        for name, arguments in _UNASKED:
            world.call(name, arguments)
            if world.state() != before:
                return Action(tool_calls=(ToolCall(id="extra", name=name, arguments=arguments),))
        raise NotFound(f"no unasked write fits the systems of {task.id!r}")


class BfclEpisode:
    """Single use. Its state is the calls so far, and pickles; the gold stays in the package's files."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._world = BfclWorld(entry_of(task))
        self._turns: list[list[ToolCall]] = [[]]

    async def step(self, action: Action) -> StepResult:
        """Call functions, or end the turn with words."""
        if not action.tool_calls:
            return self._next_turn()
        results = [self._call(call) for call in action.tool_calls]
        errors = [error for _, error in results if error is not None]
        return StepResult(observation="\n".join(text for text, _ in results), error="\n".join(errors) or None)

    async def grade(self) -> Outcome:
        """Compare with the gold run, turn by turn."""
        return grade(entry_of(self._task), self._turns)

    async def close(self) -> None:
        """Nothing to release."""

    def _call(self, call: ToolCall) -> tuple[str, str | None]:
        entry, turn = entry_of(self._task), len(self._turns) - 1
        later = {name for start, names in entry.withheld.items() if start > turn for name in names}
        if call.name in entry.excluded or call.name in later:
            message = f"{call.name} is not available now"
            return f"Error during execution: {message}", message
        self._turns[-1].append(call)
        return self._world.call(call.name, call.arguments)

    def _next_turn(self) -> StepResult:
        entry, turn = entry_of(self._task), len(self._turns)
        if turn >= len(entry.turns):
            return StepResult(observation="", done=True)
        self._turns.append([])
        return StepResult(observation=_said(entry, turn))

    def __getstate__(self) -> dict[str, Any]:
        return {"_task": self._task, "_world": self._world, "_turns": self._turns}


def entry_of(task: Task) -> Entry:
    """Return the benchmark's entry of a task, gold included. Raises `NotFound`."""
    variant, number = task.metadata.get("variant"), task.metadata.get("number")
    for known in VARIANTS:
        if known == variant and isinstance(number, int) and 0 <= number < len(entries(known)):
            return entries(known)[number]
    raise NotFound(f"bfcl has no task {task.id!r} with variant {variant!r} and number {number!r}")


def _task(entry: Entry, split: str) -> Task:
    metadata = {"variant": entry.variant, "number": entry.number, "turns": len(entry.turns)}
    scenario = f"bfcl-{entry.number}"
    instruction = _said(entry, 0)
    return Task(
        id=entry.id, instruction=instruction, environment="bfcl", scenario=scenario, split=split, metadata=metadata
    )


def _said(entry: Entry, turn: int) -> str:
    """Return what the agent reads at the start of a turn."""
    news = [f"From now on you can also use: {', '.join(entry.withheld[turn])}."] if turn in entry.withheld else []
    systems = [f"Systems: {', '.join(entry.classes)}."] if turn == 0 else []
    return "\n".join([*systems, *news, *filter(None, [entry.turns[turn]])])


def _numbers(split: str) -> list[int]:
    """Return the scenario numbers of a split: a fixed shuffle of 0-199, cut by `SIZES`."""
    shuffled = sorted(range(sum(SIZES.values())), key=lambda n: hashlib.sha256(f"bfcl-{n}".encode()).hexdigest())
    start = 0
    for name, size in SIZES.items():
        if name == split:
            return sorted(shuffled[start : start + size])
        start += size
    raise BadInput(f"bfcl has no split {split!r}")


_NAME = {"user_first_name": "No", "user_last_name": "Body"}
_KEYS = {"client_id": "1", "client_secret": "2", "refresh_token": "3", "grant_type": "read"}

_UNASKED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("touch", {"file_name": "unasked.txt"}),
    ("ticket_login", {"username": "unasked", "password": "unasked"}),
    ("authenticate_travel", _KEYS | _NAME),
    ("adjustClimateControl", {"temperature": 31.5}),
    ("add_contact", {"user_name": "unasked"}),
    ("fund_account", {"amount": 12.5}),
    ("add_to_watchlist", {"stock": "NVDA"}),
    ("add_to_watchlist", {"stock": "MSFT"}),
    ("trading_login", {"username": "unasked", "password": "unasked"}),
    ("follow_user", {"username_to_follow": "unasked"}),
)


def grade(entry: Entry, turns: Sequence[Sequence[ToolCall]]) -> Outcome:
    """Run the agent's calls and the gold calls side by side on fresh worlds. Reward is 1.0 or 0.0.

    `turns` holds the calls of each turn that was begun; a missing turn fails, and so does a turn without calls where
    the gold has some.
    """
    checker: Any = importlib.import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker")
    agent, gold = BfclWorld(entry), BfclWorld(entry)
    responses = list[str]()
    checks = list[Check]()
    for index, wanted in enumerate(entry.gold):
        calls = turns[index] if index < len(turns) else ()
        responses += [agent.call(call.name, call.arguments)[0] for call in calls]
        parsed = [gold.parse(source) for source in wanted]
        expected = [gold.call(call.name, call.arguments)[0] for call in parsed]
        if not wanted:
            continue  # nothing can be done in this turn: what the agent tried shows in the next turn's state
        state = checker.state_checker(agent.instances, gold.instances)["valid"]
        answered = bool(calls) and checker.response_checker(responses, expected, index)["valid"]
        checks += [Check(name=f"turn {index + 1}: state", passed=bool(state))]
        checks += [Check(name=f"turn {index + 1}: responses", passed=bool(answered))]
    success = len(turns) >= len(entry.gold) and all(check.passed for check in checks)
    return Outcome(success=success, reward=float(success), checks=tuple(checks))
