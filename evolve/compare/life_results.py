"""Reads what became of a comparison's lives from their journals alone, so that it can be printed again at any time."""

from __future__ import annotations

from pathlib import Path

from evolve.compare.arms import Arm
from evolve.compare.conduct import find_run
from evolve.compare.plan import Plan, Replicate
from evolve.config.model import Config
from evolve.episode.metrics import Metrics
from evolve.errors import RunMismatch
from evolve.gates.account import GateAccount
from evolve.loop.assembly import open_store
from evolve.loop.evaluate import EvalReport
from evolve.loop.report import Report, make_report
from evolve.loop.runs import DONE, RunRecord, spent
from memory.errors import NotFound
from memory.records import Frozen, Usage
from policies.roles import ROLES


class Learned(Frozen):
    """How a life learned."""

    run_id: str
    curve: tuple[bool, ...]
    """Success in order of the stream."""
    usage: Usage
    """Of acting, reflecting and curating; what gates spent is in `gates`."""
    seconds: float
    """Wall time of the stream's episodes together."""
    changes: int
    """Changes of knowledge that were applied."""
    gates: GateAccount


class Life(Frozen):
    """One arm in one replicate: everything needed to name its figures and find them again."""

    arm: str
    replicate: str
    world: str
    seed: int
    policy: str
    policy_version: str
    reflector: str
    config_hash: str
    snapshot_id: str | None
    run_id: str
    """The run in which it was judged."""
    passed: dict[str, bool | None]
    exam: Metrics
    warnings: tuple[str, ...]
    learned: Learned | None = None

    @property
    def missing(self) -> int:
        """Return how many episodes were not graded; they count as failures."""
        return sum(mark is None for mark in self.passed.values())


def read_lives(plan: Plan, folder: Path) -> tuple[Life, ...]:
    """Return every life, replicate by replicate. Raises `NotFound` while one is not done, and `RunMismatch` when one
    was judged on other tasks than planned or by another version of its policy.
    """
    lives: list[Life] = []
    versions: dict[str, Life] = {}
    for replicate in plan.replicates:
        for arm in plan.arms:
            life = _life(plan, folder, arm, replicate)
            acting = {key: value for key, value in arm.config["policy"].items() if key not in ROLES}
            other = versions.setdefault(f"{replicate.world} {acting}", life)
            if other.policy_version != life.policy_version:
                raise RunMismatch(
                    f"policy {life.policy!r} changed meanwhile: {other.arm} in {other.replicate} had version "
                    f"{other.policy_version!r}, {life.arm} in {life.replicate} has {life.policy_version!r}; compare "
                    "again with another --out"
                )
            lives.append(life)
    return tuple(lives)


def _life(plan: Plan, folder: Path, arm: Arm, replicate: Replicate) -> Life:
    config = plan.config(folder, arm, replicate, frozen=True)
    record = _done(plan, config, arm, replicate, frozen=True)
    with open_store(config, read_only=True) as store:
        (event,) = store.events(type="evaluation", run_id=record.run_id)
    exam = EvalReport.model_validate(event.data)
    if set(exam.passed) != set(replicate.report):
        odd = sorted(set(exam.passed) ^ set(replicate.report))
        raise RunMismatch(
            f"{arm.name} in {replicate.name} was judged on {len(exam.passed)} tasks, planned were "
            f"{len(replicate.report)}; {odd[0]!r} is in one of them only: compare again with another --out"
        )
    return Life(
        arm=arm.name,
        replicate=replicate.name,
        world=replicate.world,
        seed=config.run.seed,
        policy=record.policy,
        policy_version=record.policy_version,
        reflector=_reflector(arm),
        config_hash=record.config_hash,
        snapshot_id=exam.snapshot_id,
        run_id=record.run_id,
        passed=exam.passed,
        exam=exam.metrics,
        warnings=exam.warnings,
        learned=_learned(plan, folder, arm, replicate) if arm.learns else None,
    )


def _done(plan: Plan, config: Config, arm: Arm, replicate: Replicate, *, frozen: bool) -> RunRecord:
    record = find_run(config, arm, frozen=frozen)
    if record is None or record.status != DONE:
        what = "been judged" if frozen else "learned"
        raise NotFound(f"{arm.name} in {replicate.name} has not {what} to the end; go on with `{plan.command}`")
    return record


def _learned(plan: Plan, folder: Path, arm: Arm, replicate: Replicate) -> Learned:
    config = plan.config(folder, arm, replicate, frozen=False)
    record = _done(plan, config, arm, replicate, frozen=False)
    with open_store(config, read_only=True) as store:
        report: Report = make_report(store, record.run_id)
        whole = spent(store, record.run_id)
    gates = report.gates.usage
    usage = Usage(**{name: getattr(whole, name) - getattr(gates, name) for name in Usage.model_fields})
    seconds = report.whole.seconds * report.whole.tasks if report.whole else 0.0
    return Learned(
        run_id=record.run_id,
        curve=report.curve,
        usage=usage,
        seconds=seconds,
        changes=report.learned,
        gates=report.gates,
    )


def _reflector(arm: Arm) -> str:
    """Return who reflects and who curates; a snapshot or an arm without memory has neither."""
    section, roles = arm.config["playbook"], arm.config["policy"]
    if not (arm.learns and section["enabled"]):
        return "-"
    models = {role: roles.get(role) for role in ("reflector", "curator")}
    by = {role: f" by {own['name']} {own['model']}".rstrip() if own else "" for role, own in models.items()}
    return f"{section['reflector']}{by['reflector']} / {section['curator']}{by['curator']}"
