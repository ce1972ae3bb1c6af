"""Promotes skills from processes that die at a chosen SQL statement, and from many processes at the same time.

What runs in a process is the `evolve` command itself, or `add_skill`; afterwards the workspace is opened and examined.
What the command told each process is read too: its exit code, and what it printed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

from benchmarks.kills import processes
from benchmarks.lives import DEATH, OUTPUT, STATEMENTS, Death, trace
from benchmarks.skill_mix import add, useless
from evolve.config.file import load_config
from evolve.config.model import Config
from evolve.environments.office.house_rules import seeded
from evolve.loop.assembly import open_store
from evolve.workspace.seeding import add_skill
from memory.errors import EvolveError
from memory.records import Status
from skills.record import Skill

SETTINGS = '[environment]\nname = "office"\n[memory]\nindex = "exact"\n'
APPLIED, UNCHANGED = "applied", "unchanged"
TOLD = "told-"
"""How the file begins in which a process notes what the command told it."""


@dataclass
class Toll:
    """What became of a skill whose promotion was killed."""

    kills: int = 0
    promoted: int = 0
    """Of these, killed after it was committed."""
    torn: list[str] = field(default_factory=list[str])
    """Workspaces that did not open, or in which the skill is neither as before nor promoted."""
    findings: list[str] = field(default_factory=list[str])
    stuck: int = 0
    """Skills that could not be promoted afterwards."""


@dataclass(frozen=True)
class Together:
    """What became of skills that many processes wanted at the same time."""

    skills: int
    failed: int
    """Processes that ended by an error."""
    wrong: list[str]
    """Names that are not in use exactly once, active."""
    findings: list[str]
    claimed: list[str] = field(default_factory=list[str])
    """Names that other than one process was told it put in use; of promotions alone."""
    astray: list[str] = field(default_factory=list[str])
    """Promotions that ended otherwise than applied or as unchanged, those without a known end included."""


def kill_promotions(root: Path, every: int) -> Toll:
    """Kill a promotion at every so-many-th of its SQL statements, each in a workspace of its own; try again after."""
    toll = Toll()
    config = _prepared(root / "first", 1)
    (name,) = _names(config)
    straight = _copied(config, root / "straight")
    _promote(straight, [name], Death(None))
    for statement in range(1, int((straight.root / STATEMENTS).read_text()) + 1, every):
        copy = _copied(config, root / f"at-{statement}")
        _promote(copy, [name], Death(statement))
        toll.kills += (copy.root / DEATH).exists()
        try:
            status, findings = _examined(copy, name)
        except EvolveError as error:
            toll.torn.append(f"statement {statement}: {error}")
            continue
        toll.promoted += status is Status.ACTIVE
        toll.torn += [f"statement {statement}: {status}"] * (status not in (Status.ACTIVE, Status.CANDIDATE))
        toll.findings += findings
        _promote(copy, [name], Death(None))
        toll.stuck += _examined(copy, name)[0] is not Status.ACTIVE
        shutil.rmtree(copy.root)
    return toll


def promote_together(root: Path, promoters: int, skills: int) -> Together:
    """Let processes promote the same skills, each in the same order, and read what each of them was told."""
    config = _prepared(root, skills)
    names = _names(config)
    found = _together(config, names, [(_run, (config.root, names, Death(None)))] * promoters)
    told = [each for file in sorted(config.root.glob(f"{TOLD}*")) for each in json.loads(file.read_text())]
    ends = [(name, _end(code, said)) for name, code, said in told]
    winners = Counter(name for name, end in ends if end == APPLIED)
    astray = [f"{name}: {end}" for name, end in ends if end not in (APPLIED, UNCHANGED)]
    return replace(
        found,
        claimed=[f"{name}: {winners[name]} processes" for name in names if winners[name] != 1],
        astray=astray + ["no end is known"] * (promoters * len(names) - len(told)),
    )


def _end(code: int, said: str) -> str:
    """Return how a promotion ended, by what the command told: applied, unchanged, or anything else in its words.

    The exit code alone does not tell a skill that is in use already from an error: both are 1.
    """
    if code == 0 and said.startswith("1 applied, 0 refused;"):
        return APPLIED
    return UNCHANGED if code == 1 and "\nrefused: unchanged: " in said else f"exit code {code}, {said.strip()!r}"


def add_together(root: Path, writers: int, skills: int) -> Together:
    """Let processes register the same functions in an empty workspace."""
    config = _workspace(root)
    sources = useless(seeded("together"), skills)
    names = [Skill(source=source).name for source in sources]
    return _together(config, names, [(_register, (config.root, sources))] * writers)


def _together(config: Config, names: Sequence[str], work: Sequence[tuple[Any, tuple[Any, ...]]]) -> Together:
    children = [processes.Process(target=target, args=arguments) for target, arguments in work]
    for child in children:
        child.start()
    for child in children:
        child.join()
    with open_store(config) as store:
        used = Counter(record.payload.name for record in store.records("default") if record.status is Status.ACTIVE)
        findings = [f"{item.code}: {item.message}" for item in store.doctor() if item.level != "info"]
    wrong = [f"{name}: {used[name]} times" for name in names if used[name] != 1]
    return Together(len(names), sum(child.exitcode != 0 for child in children), wrong, findings)


def _workspace(root: Path) -> Config:
    root.mkdir(parents=True)
    (root / "evolve.toml").write_text(SETTINGS)
    config = load_config(root / "evolve.toml")
    open_store(config).close()
    return config


def _prepared(root: Path, skills: int) -> Config:
    """Return a workspace with so many skills that wait."""
    config = _workspace(root)
    ops = [add(source, status=Status.CANDIDATE) for source in useless(seeded("promotions"), skills)]
    with open_store(config) as store:
        store.commit("default", ops, actor="benchmark")
    return config


def _copied(config: Config, root: Path) -> Config:
    shutil.copytree(config.root, root)
    return load_config(root / "evolve.toml")


def _names(config: Config) -> list[str]:
    with open_store(config, read_only=True) as store:
        return [record.payload.name for record in store.records("default")]


def _examined(config: Config, name: str) -> tuple[Status, list[str]]:
    """Return the status of a skill and what the doctor finds."""
    with open_store(config) as store:
        (status,) = (record.status for record in store.records("default") if record.payload.name == name)
        return status, [f"{item.code}: {item.message}" for item in store.doctor() if item.level != "info"]


def _promote(config: Config, names: Sequence[str], death: Death) -> None:
    child = processes.Process(target=_run, args=(config.root, names, death))
    child.start()
    child.join()


def _run(root: Path, names: Sequence[str], death: Death) -> None:
    """Promote skills by the command line, in a process of its own; note name, exit code and words of each in a file."""
    from evolve.cli.main import app

    _into(root)
    trace(root, death, statements := Counter[bool]())
    told: list[tuple[str, int, str]] = []
    for name in names:
        with redirect_stdout(StringIO()) as said:
            code = app(["--config", str(root / "evolve.toml"), "skills", "promote", name], standalone_mode=False)
        told.append((name, code or 0, said.getvalue()))
    (root / f"{TOLD}{os.getpid()}.json").write_text(json.dumps(told))
    (root / STATEMENTS).write_text(str(statements.total()))


def _register(root: Path, sources: Sequence[str]) -> None:
    _into(root)
    config = load_config(root / "evolve.toml")
    for source in sources:
        add_skill(config, source)


def _into(root: Path) -> None:
    output = os.open(root / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
