"""A plumbing check of the loop on an environment that nobody here wrote: BFCL v4 multi-turn. No model is involved.

    python examples/bfcl_plumbing.py

A scripted policy plays the benchmark's own gold calls, except that it forgets every call whose absence makes a later
call fail (found by trying: drop one, run the rest). When a call fails it carries on, and only when the user comes back
in the next turn does it try the forgotten calls one by one: too late for the turn's grade, but the `rules` reflector
sees what helped. A learned bullet whose cue is `before X` and whose action is `Y` reminds it of a forgotten `Y` before
it calls `X`. So held-out success rises only if failing calls, reflection, curation, gate, commit, recall and the prompt
all do their part. That is all it shows: it says nothing about what a model would learn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import evolve
from evolve import (
    Action,
    Bfcl,
    Config,
    ControlsSection,
    EnvironmentSection,
    MemorySection,
    Message,
    Parts,
    PlaybookSection,
    Reply,
    RunResult,
    RunSection,
    SamplingParams,
    ScriptedPolicy,
    Task,
    ToolCall,
    run,
)

Rules = Mapping[str, frozenset[str]]
"""Call -> calls that must come before it."""
Lookup = Callable[[int], tuple[str, str]]
"""Number of a record -> cue and action of its bullet."""

_CITED = re.compile(r"^\[[a-z]+-(\d+)\]", re.MULTILINE)


@cache
def gold_calls(task_id: str) -> tuple[tuple[ToolCall, ...], ...]:
    """Return the gold calls of a base task, turn by turn."""
    return Bfcl().gold_calls(_tasks()[task_id])


@cache
def forgotten(task_id: str) -> frozenset[int]:
    """Return the positions of the gold calls without which a later gold call fails."""
    calls = [call for turn in gold_calls(task_id) for call in turn]
    return frozenset(at for at in range(len(calls)) if _fails_without(task_id, calls, at))


def _fails_without(task_id: str, calls: Sequence[ToolCall], left_out: int) -> bool:
    world = Bfcl().world(_tasks()[task_id])
    kept = [call for at, call in enumerate(calls) if at != left_out]
    return any(world.call(call.name, call.arguments)[1] is not None for call in kept)


@cache
def _tasks() -> dict[str, Task]:
    return {task.id: task for task in Bfcl().every_task() if task.metadata["variant"] == "base"}


class Player:
    """Plays one task; what it does next depends on the rules and on the answers so far alone."""

    def __init__(self, task_id: str, rules: Rules) -> None:
        self._turns = gold_calls(task_id)
        self._calls = [call for turn in self._turns for call in turn]
        self._rules = rules
        self._missing = set(forgotten(task_id))

    def play(self) -> Generator[Action, str, None]:
        """Yield actions and be sent observations."""
        failed = list[int]()
        at = 0
        for turn in self._turns:
            for index in failed:
                yield from self._repair(index)
            failed = []
            for index in range(at, at + len(turn)):
                if index not in self._missing and not (yield from self._call(index)):
                    failed.append(index)
            at += len(turn)
            yield Action(text="Done.")

    def _call(self, index: int) -> Generator[Action, str, bool]:
        """Make a call, after the forgotten ones that the rules put before it. Return whether it worked."""
        name = self._calls[index].name
        for other in sorted(self._missing):
            if other < index and self._calls[other].name in self._rules.get(name, frozenset()):
                self._missing.discard(other)
                yield from self._call(other)
        observation = yield Action(tool_calls=(self._calls[index],))
        return not _is_error(observation)

    def _repair(self, index: int) -> Generator[Action, str, None]:
        """Try the forgotten calls, the nearest first, until the call works."""
        for other in sorted((other for other in self._missing if other < index), reverse=True):
            self._missing.discard(other)
            yield Action(tool_calls=(self._calls[other],))
            if (yield from self._call(index)):
                return


def scripted(lookup: Lookup) -> ScriptedPolicy:
    """Return the policy. `lookup` gives the structured half of a bullet that the prompt shows by number."""
    by_instruction = {task.instruction: task.id for task in _tasks().values()}

    def script(messages: Sequence[Message], params: SamplingParams) -> Reply:
        system, user, *rest = messages
        rules = dict[str, frozenset[str]]()
        for number in _CITED.findall(system.content):
            cue, action = lookup(int(number))
            when, _, call = cue.partition(" ")
            if when == "before" and call:
                rules[call] = rules.get(call, frozenset()) | {action}
        player = Player(by_instruction[user.content], rules).play()
        action = next(player)
        for observation in rest[1::2]:
            action = player.send(observation.content)
        return Reply(text=action.text, tool_calls=action.tool_calls)

    return ScriptedPolicy(script, name="forgetful", version="1")


def configured(folder: Path, tasks: int | None = None) -> Config:
    """Return a configuration of the real loop: BFCL, the `rules` reflector, the curator that needs no model."""
    return Config(
        root=folder,
        run=RunSection(mode="online", split="train", tasks=tasks, eval_splits=("test_normal",)),
        environment=EnvironmentSection(name="bfcl"),
        memory=MemorySection(index="exact"),
        playbook=PlaybookSection(reflector="rules", curator="direct", token_budget=2048),
        controls=ControlsSection(no_memory=0.0),
    )


def bullets(config: Config) -> Lookup:
    """Return the lookup over a workspace's playbook, read while a run writes it."""
    known: dict[int, tuple[str, str]] = {}

    def lookup(number: int) -> tuple[str, str]:
        if number not in known:
            with evolve.open(config) as memory:
                records = [memory.show(row.label).record for row in memory.playbook]
            known.update((record.number, (record.payload.cue, record.payload.action)) for record in records)
        return known[number]

    return lookup


def learn(config: Config) -> RunResult:
    """Work through the train split, learning."""
    return run(config, parts=Parts(policy=scripted(bullets(config))))


def examine(config: Config) -> RunResult:
    """Evaluate the held-out split, with memory and without."""
    frozen = config.model_copy(
        update={
            "run": config.run.model_copy(update={"mode": "frozen", "tasks": None}),
            "controls": ControlsSection(no_memory=1.0),
        }
    )
    return run(frozen, parts=Parts(policy=scripted(bullets(config))))


def main() -> None:
    """Learn, then print what was learned and how the held-out tasks go."""
    with TemporaryDirectory() as folder:
        config = configured(Path(folder))
        learned = learn(config)
        print("Plumbing check of the loop with a scripted policy; not evidence of a model's learning.")
        if learned.metrics is not None:
            print(f"train, while learning: {learned.metrics.tgc:.1%}")
        with evolve.open(config) as memory:
            for row in memory.playbook:
                print(f"  [{row.label}] {row.content}")
        for report in examine(config).evaluations:
            print(f"{report.split}, {report.arm}: {report.metrics.tgc:.1%}")


def _is_error(observation: str) -> bool:
    if observation.startswith("Error during execution"):
        return True
    try:
        answer = json.loads(observation)
    except ValueError:
        return False
    return isinstance(answer, dict) and "error" in answer


if __name__ == "__main__":
    main()
