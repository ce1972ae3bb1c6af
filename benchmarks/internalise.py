"""Share of the playbook that may leave the prompt once the weights took it in: `python -m benchmarks.internalise`.

In each office the agent learns a playbook from 300 train tasks, and `evolve train internalise` distils what was done
with it into a policy that is not shown it (context distillation). Parent and child then do the same 153 held-out tasks,
greedily, under budgets of playbook tokens. A budget loses nothing where the 95 % interval of the child under it minus
the parent under all of it lies above -2 points; tasks of all offices are paired.
"""

from __future__ import annotations

import argparse
import asyncio
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import mean

from rich.console import Console
from rich.table import Table

from benchmarks.from_logs import RATE, TASKS, config_of, promote
from benchmarks.office_arms import SPLITS, folder
from evolve.config.model import Config, ControlsSection, PlaybookSection, RunSection
from evolve.config.training import RECIPES
from evolve.episode.arms import MAIN
from evolve.episode.injection import shown_again
from evolve.episode.prompting import knowledge
from evolve.generations import workspace_registry as generations
from evolve.loop.assembly import open_store
from evolve.loop.session import Parts, run
from evolve.statistics.paired import Passed, interval, pair
from evolve.training.training_session import train_from_logs

BUDGETS = (1024, 64, 32, 16, 0)
LOSS = -2.0
"""Points that count as none."""
Arm = tuple[str, int]
"""Who acted, and under which budget of playbook tokens."""
Marks = dict[Arm, tuple[dict[str, bool | None], float]]
"""What each arm solved, and the mean tokens of the playbook in its prompts."""


def measure(deployment: int) -> Marks:
    """Work, train, and measure in one office."""
    with folder() as root:
        config = config_of(root, deployment, TASKS, **RECIPES["internalise"], learning_rate=RATE)
        run(config)
        found = {("parent", budget): tried(config, budget) for budget in BUDGETS}
        promote(config, train_from_logs(config, "internalise").generation)
        return found | {("child", budget): tried(config, budget) for budget in BUDGETS}


def tried(config: Config, budget: int) -> tuple[dict[str, bool | None], float]:
    """Return which held-out tasks the live generation solves under a budget, and the tokens that it was shown."""
    section = RunSection(mode="frozen", eval_splits=SPLITS, concurrency=64)
    update = {
        "run": section,
        "playbook": PlaybookSection(token_budget=budget),
        "controls": ControlsSection(no_memory=0),
    }
    policy = generations.in_process(config.policy, config.workspace)
    try:
        evaluations = run(config.model_copy(update=update), parts=Parts(policy=policy)).evaluations
        reports = [each for each in evaluations if each.arm == MAIN]
        with open_store(config, policy.count_tokens, read_only=True) as store:
            shown = [shown_again(store, t.injected) for each in reports for t in store.trajectories(run_id=each.id)]
        texts = [knowledge(each.core, each.recalled, policy.profile) for each in shown]
        marks = {task: mark for each in reports for task, mark in each.passed.items()}
        return marks, mean(map(policy.count_tokens, texts))
    finally:
        asyncio.run(policy.aclose())


def together(offices: dict[int, Marks], arm: Arm) -> Passed:
    """Return the marks of an arm in all offices."""
    return {f"{at}/{task}": mark for at, marks in offices.items() for task, mark in marks[arm][0].items()}


def table(offices: dict[int, Marks]) -> Table:
    """Return what each budget costs."""
    drawn = Table("tokens shown", "parent %", "child %", "child minus parent with all, points", "loses nothing")
    whole = together(offices, ("parent", BUDGETS[0]))
    for budget in BUDGETS:
        parent, child = (together(offices, (who, budget)) for who in ("parent", "child"))
        found = pair(list(whole), whole, child)
        low, high = (100 * end for end in interval(len(found.gained), len(found.lost), found.n))
        tokens = mean(marks["child", budget][1] for marks in offices.values())
        solved = [100 * mean(mark is True for mark in arm.values()) for arm in (parent, child)]
        difference = f"{100 * found.delta:+.1f} [{low:.1f}, {high:.1f}]"
        drawn.add_row(f"{tokens:.0f}", *(f"{each:.1f}" for each in solved), difference, "yes" if low > LOSS else "no")
    return drawn


def main() -> None:
    """Measure the offices given and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--offices", type=int, nargs="+", default=[506, 507])
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args()
    with ProcessPoolExecutor(chosen.processes, get_context("spawn")) as pool:
        offices = dict(zip(chosen.offices, pool.map(measure, chosen.offices), strict=True))
    Console(width=120).print(table(offices))


if __name__ == "__main__":
    main()
