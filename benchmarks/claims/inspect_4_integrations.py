"""Claim inspect_4: other people's agents learn here. MCP, a LangGraph store, and a wrapped agent on held-out tasks.

The wrapped agent is LangChain's `create_agent` with the pocket model as its chat model, in office deployments that
nobody tuned on: 60 train tasks in turns of four, then the held-out tasks with learning off. The other arm does the same
train tasks with learning off. A/A: what was learned, examined twice at temperature 0.7.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

from benchmarks.claim import Row, Target, at_least, begin, exactly
from benchmarks.langchain_office import SPLITS, TOKENS, Wrapped
from benchmarks.mcp_walk import ENV, prepare, walk
from benchmarks.office_arms import office
from benchmarks.table import ROOT
from evolve.statistics.clusters import Pairing, compare, pairing
from policies.local import LocalPolicy
from policies.protocols import SamplingParams

DEPLOYMENTS, QUICK = range(40, 45), range(930, 931)
TRAIN, QUICK_TRAIN, QUICK_TEST = 60, 16, 4
GAIN, NOISE = 30.0, 3.0
QUICK_GAIN, QUICK_NOISE = 10.0, 50.0
EXAMPLE = [2, 2, 1, 2, 1, 1]
"""Calls per door of examples/langgraph_learns.py: one less once the door is known."""
SUITE = "tests/contracts/test_langgraph_stores.py"

Marks = dict[str, bool]


def near(bound: float) -> Target:
    """Return the target `-bound <= measured <= bound`."""
    return Target(f"within {bound:g} of 0", lambda measured: abs(measured) <= bound)


async def lives(policy: LocalPolicy, deployment: int, quick: bool) -> dict[str, Marks]:
    """Return which held-out tasks each arm of one deployment solved."""
    world = office(deployment)
    train = list(world.tasks("train"))[: QUICK_TRAIN if quick else TRAIN]
    held = [task for split in SPLITS for task in list(world.tasks(split))[: QUICK_TEST if quick else None]]
    found: dict[str, Marks] = {}
    with tempfile.TemporaryDirectory(prefix="evolve-bench-") as folder:
        for arm, learning in (("on", True), ("off", False)):
            root = Path(folder) / arm
            root.mkdir()
            agent = Wrapped(policy, deployment, root)
            if "before" not in found:
                found["before"] = await agent.examine(held)
            await agent.work(train, learning=learning, at_once=4)
            found[f"after {arm}"] = await agent.examine(held)
        learner = Wrapped(policy, deployment, Path(folder) / "on")
        for seed in (1, 2):
            warm = SamplingParams(temperature=0.7, seed=seed, max_tokens=TOKENS)
            found[f"aa {seed}"] = await learner.examine(held, warm)
    return found


def agreeing(quick: bool) -> tuple[int, int]:
    """Return how many cases of the contract suite both stores pass, and how many there are."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        which = ["-k", "filter or pages or batch"] if quick else []
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            SUITE,
            f"--junitxml={report}",
            *which,
        ]
        subprocess.run(command, cwd=ROOT, env=ENV, capture_output=True)
        cases = {case.get("name", ""): len(case) == 0 for case in ElementTree.parse(report).iter("testcase")}
    ours = [name for name in cases if "JournalStore" in name]
    both = [name for name in ours if cases[name] and cases.get(name.replace("JournalStore", "InMemoryStore"))]
    return len(both), len(ours)


def example_works() -> bool:
    """Tell whether the example of the middleware prints what it promises."""
    command = [sys.executable, "examples/langgraph_learns.py"]
    ran = subprocess.run(command, cwd=ROOT, env=ENV, capture_output=True, text=True)
    return ran.returncode == 0 and [int(line.split()[1]) for line in ran.stdout.splitlines()] == EXAMPLE


def difference(
    text: str, base: str, candidate: str, arms: dict[int, dict[str, Marks]], target: Target | None = None
) -> Row:
    """Return the paired difference of two arms over all deployments, in points."""
    pairs: Sequence[Pairing] = [
        pairing(str(deployment), 0, list(found[base]), found[base], found[candidate])
        for deployment, found in arms.items()
    ]
    over = compare(pairs)
    return Row(text, 100 * over.delta, target, n=over.n, ci=(100 * over.low, 100 * over.high), seed=0)


def rate(arm: str, arms: dict[int, dict[str, Marks]]) -> Row:
    """Return the share of held-out tasks that an arm solved, in per cent."""
    marks = [passed for found in arms.values() for passed in found[arm].values()]
    return Row(f"held-out tasks solved, {arm}, %", 100 * sum(marks) / len(marks), n=len(marks), seed=0)


async def measure(quick: bool) -> tuple[list[bool], dict[int, dict[str, Marks]]]:
    """Walk the MCP server and live in every deployment."""
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        calls = await walk(Path(folder))
    arms: dict[int, dict[str, Marks]] = {}
    policy = LocalPolicy.pocket(threads=1)
    try:
        for deployment in QUICK if quick else DEPLOYMENTS:
            arms[deployment] = await lives(policy, deployment, quick)
            shown = "  ".join(f"{arm} {sum(marks.values())}" for arm, marks in arms[deployment].items())
            print(f"deployment {deployment}: of {len(arms[deployment]['aa 1'])}: {shown}", flush=True)
    finally:
        await policy.aclose()
    return calls, arms


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed."""
    claim = begin("inspect_4_integrations", __doc__)
    calls, arms = asyncio.run(measure(claim.quick))
    agreed, cases = agreeing(claim.quick)
    gain, noise = (QUICK_GAIN, QUICK_NOISE) if claim.quick else (GAIN, NOISE)
    claim.conclude(
        [
            Row("MCP calls that came out right, of those asked", sum(calls), exactly(len(calls)), n=len(calls)),
            Row("store cases in which ours and LangGraph's own agree", agreed, exactly(cases), n=cases),
            Row("the middleware's example works", float(example_works()), exactly(1)),
            difference("wrapped agent, learning on: after minus before", "before", "after on", arms, at_least(gain)),
            difference("wrapped agent, learning off: after minus before", "before", "after off", arms),
            difference("A/A: learned, twice at temperature 0.7", "aa 1", "aa 2", arms, near(noise)),
            *(rate(arm, arms) for arm in ("before", "after on", "after off")),
        ]
    )


if __name__ == "__main__":
    main()
