"""Runs a comparison from plan to report; what `evolve compare` and the benchmarks call.

Everything is kept in one folder: `plan.json`, a workspace for each life, `report.md`, `report.json` and the pictures.
The same plan in the same folder goes on where it stopped, and prints what it found once it is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from evolve.compare.arms import Arm, Given, resolve
from evolve.compare.comparison import Comparison, read_comparison
from evolve.compare.conduct import Watch, conduct, shared_policies
from evolve.compare.listed import listed
from evolve.compare.markdown_report import markdown
from evolve.compare.plan import ComparisonOptions, Plan, Replicate, make_plan, read_plan, store_plan
from evolve.config.model import Config
from evolve.loop.session import Parts
from evolve.progress import Observer, Observers
from memory.errors import BadInput
from memory.redact import redact
from policies.scripted import ScriptedPolicy

REPORT, DATA = "report.md", "report.json"


def plan_of(arms: Sequence[str], given: Given, options: ComparisonOptions, command: str) -> Plan:
    """Return the plan of the arms that are named in words. Raises `BadInput` for too few, and as `make_plan`."""
    if not arms or (len(arms) < 2 and not options.controls):
        raise BadInput(f"got {len(arms)} arms; name two at least, or one to see it beside its controls")
    return make_plan([resolve(arm, given) for arm in arms], options, redact(command))


def folder_of(config: Config, plan: Plan) -> Path:
    """Return where a workspace keeps a comparison that was given no folder."""
    return config.workspace / "compare" / plan.digest


def compare(
    plan: Plan,
    folder: Path,
    *,
    parts: Callable[[Config], Parts] | None = None,
    watch: Watch | None = None,
    config: Config | None = None,
) -> Comparison:
    """Do what is missing of a plan in `folder`, write the reports, and return what was found.

    `parts` gives each life its objects, from its configuration; by default what the configuration names, one policy
    shared by all who name the same. The workspace of `config` lists the comparison among its runs, under its run.name
    and run.tags; without one no workspace does. Raises as `store_plan`, `conduct` and `read_lives`.
    """
    return asyncio.run(acompare(plan, folder, parts=parts, watch=watch, config=config))


async def acompare(
    plan: Plan,
    folder: Path,
    *,
    parts: Callable[[Config], Parts] | None = None,
    watch: Watch | None = None,
    config: Config | None = None,
) -> Comparison:
    """`compare` for code that is in an event loop already."""
    async with nullcontext(parts) if parts else shared_policies() as made:
        kept = store_plan(plan.model_copy(update={"toys": _toys(plan, folder, made)}), folder)
        watch = watch or _unwatched
        with listed(config, kept, folder) if config else nullcontext() as listing:
            await conduct(kept, folder, made, listing.watch(watch) if listing else watch)
            found = _written(kept, folder)
            if listing:
                listing.ended(found)
    return found


def reprint(folder: Path) -> Comparison:
    """Read a finished comparison from its journals again, and write its reports anew. Raises as `read_lives`."""
    return _written(read_plan(folder), folder)


def _written(plan: Plan, folder: Path) -> Comparison:
    found = read_comparison(folder, plan)
    (folder / REPORT).write_text(markdown(found), encoding="utf-8")
    (folder / DATA).write_text(found.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return found


def _toys(plan: Plan, folder: Path, parts: Callable[[Config], Parts]) -> tuple[str, ...]:
    """Return the names of the policies that are pocket, or a script."""
    found: set[str] = set()
    for arm in plan.compared:
        config = plan.config(folder, arm, plan.replicates[0], frozen=False)
        policy = parts(config).policy
        if config.policy.name == "pocket" or isinstance(policy, ScriptedPolicy):
            found.add(policy.name if policy else config.policy.name)
    return tuple(sorted(found))


def _unwatched(replicate: Replicate, arm: Arm) -> Observer:
    return Observers()
