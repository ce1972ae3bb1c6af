"""Controls of a run, and upper bounds of its cost: decided before the first task. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from evolve.config.model import Config, PolicySection
from evolve.gates.stack import RUNS_TASKS, expanded
from evolve.seeds import seed_for
from memory.records import Frozen, Task, Usage

AUTO_SHARE = 0.25
FREE_ADVANCE = 1500
"""Enough for the default gates to measure some twenty lessons with the tasks of office."""
_OTHER_TOKENS = 500
"""Rough tokens of a prompt beside the world's description and the knowledge: task, code and observations."""


class WorldCost(Frozen):
    """What an environment costs."""

    tokens: int
    """Of what the agent is told of it in every prompt: its description, and the tools that are offered."""
    max_steps: int
    gate_advance: int = 0
    """Calls that the gates may make beside their share of the stream's (`gate_advance`)."""


class Estimate(Frozen):
    """Upper bounds of a run, from the step limit; a good agent needs far less."""

    episodes: int
    calls: int
    """The gates' included."""
    gate_calls: int
    """What gates may spend beside the stream, by `gate.calls_ratio`; 0 where none runs tasks."""
    tokens: int
    cost_usd: float | None
    """None without a configured price."""

    @property
    def sentence(self) -> str:
        """Return the estimate in words."""
        money = "no price configured" if self.cost_usd is None else f"at most about ${self.cost_usd:.2f}"
        gates = f" ({self.gate_calls} of them for gates)" if self.gate_calls else ""
        return f"{self.episodes} episodes, at most {self.calls} calls{gates} and about {self.tokens} tokens, {money}"


def control_share(config: Config, *, free: bool, live: bool = False) -> tuple[float, str]:
    """Return the share of tasks that are also done without memory, and a sentence when none is."""
    wanted = config.controls.no_memory
    if not config.playbook.enabled:
        return 0.0, "the playbook is off: the run itself is the no-memory arm"
    if wanted == "auto" and live:
        return 0.0, "no no-memory control: the tasks of this environment cannot be run again"
    if wanted == "auto" and not free:
        return 0.0, "no no-memory control: its calls can cost money; set [controls] no_memory to a share to have one"
    share = AUTO_SHARE if wanted == "auto" else wanted
    return share, "" if share else "no no-memory control: [controls] no_memory is 0"


def gate_advance(config: Config, *, free: bool) -> int:
    """Return how many calls the gates may make beside those that `gate.calls_ratio` allows."""
    wanted = config.gate.calls_advance
    if wanted != "auto":
        return wanted
    return FREE_ADVANCE if free else 0


def sampled(tasks: Sequence[Task], share: float, seed: int) -> frozenset[str]:
    """Return the ids of about `share` of the tasks; a task is in or out whatever the others are."""
    return frozenset(task.id for task in tasks if seed_for(seed, "control", task.id) < share * 2**31)


def estimate(
    config: Config, tasks: int, share: float, world: WorldCost, *, validation: int = 0, gates: Sequence[str] = ()
) -> Estimate:
    """Return upper bounds for a run over `tasks` tasks and `validation` episodes of the dev split.

    `gates` are those of the run.
    """
    run, passes = config.run, config.run.epochs if config.run.mode == "offline" else 1
    further = 0 if run.mode == "frozen" else tasks * (run.attempts - 1)
    episodes = (round(tasks * (1 + share)) + further) * passes + validation
    if run.mode == "frozen":
        episodes += tasks * config.controls.aa
        if run.attempts > 1:  # with notes, without them, and again with an avoid list
            episodes = tasks * (3 * run.attempts - 1)
    learning = 0 if run.mode == "frozen" or not config.playbook.enabled else tasks * passes * 2
    steps = world.max_steps + 2 * (config.policy.teacher.plan_review + config.policy.teacher.retry)
    gated = learning and RUNS_TASKS & set(gates or expanded(config.gate.names, graded=not run.label_free))
    by_ratio = round(config.gate.calls_ratio * tasks * passes * steps)
    gate_calls = by_ratio + world.gate_advance if gated else 0
    calls = episodes * steps + learning + gate_calls
    prompt = world.tokens + config.playbook.token_budget + _OTHER_TOKENS
    each = Usage(prompt_tokens=prompt, completion_tokens=config.policy.max_tokens)
    tokens = calls * (each.prompt_tokens + each.completion_tokens)
    taught = further * passes * steps if config.policy.teacher.attempts else 0
    cost = _cost(config.policy, each, acting=calls - learning - taught, learning=learning, taught=taught)
    return Estimate(episodes=episodes, calls=calls, gate_calls=gate_calls, tokens=tokens, cost_usd=cost)


def _cost(section: PolicySection, each: Usage, *, acting: int, learning: int, taught: int) -> float | None:
    """Return the US dollars of these calls, of which the reflector and the curator share the learning, and `taught` are
    the teacher's; None without a price.
    """
    half = learning // 2
    asked = [(section, acting), (section.reflector or section, half), (section.curator or section, learning - half)]
    asked += [(section.teacher, taught)] if taught else []
    costs = [calls * model.price.cost(each) for model, calls in asked if model.price]
    return sum(costs) if costs else None
