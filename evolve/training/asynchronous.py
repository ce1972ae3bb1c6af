"""Training by rollouts that go on while the weights are changed (`train.backend = "trl_async"`), from `[train]`.

An iteration is an update of as many rows as a batch has, of whatever batches they are. Its line in `metrics.jsonl` says
what came of the batches that were finished since the line before (none: as that line says), that in `history.jsonl`
which episodes it was made of, and how many rows each version had sampled. Killed at any moment, a training goes on
after the last update, with the batch after the newest of which a row was trained; what was rolled out and not trained
on by then is lost (`waiting` counts it).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from evolve.config.model import Config
from evolve.errors import ConfigError
from evolve.generations import workspace_registry as generations
from evolve.loop.assembly import make_environment, open_store
from evolve.progress import Observers, RunFinished
from evolve.telemetry.described import Traced
from evolve.telemetry.start import traced
from evolve.training import ledger
from evolve.training.admission import Weighed
from evolve.training.async_worker import Buffer, RolloutWorker, Source, summed
from evolve.training.estimates import OUTCOMES, begin, estimates, outcomes
from evolve.training.ledger import CHECKPOINT, GOOD, HISTORY, METRICS
from evolve.training.loop import Plan, returned, settle
from evolve.training.training_data import trainable
from evolve.training.workspace_rollouts import SNAPSHOT, Methods, Report, acting_of, plan_of, world_of
from policies.generations.token_policy import TokenPolicy
from policies.local.loading import load_encoder
from policies.rl.trainer import Trainer
from policies.rl.trl_async import MAX_STALENESS, Portions, TrlAsyncTrainer, samples
from policies.rl.trl_server import adapter_name


def asynchronously(config: Config) -> Callable[..., tuple[str, tuple[Weighed, ...]]]:
    """Return `rolled_out`. Raises `ConfigError` for keys that do not go together with training so."""
    section, policy = config.train, config.policy
    if policy.name != "served" or policy.api_key_env or policy.replicas:
        raise ConfigError(
            f'train.backend = "trl_async" rolls out on a vLLM server; got policy.name = {policy.name!r}, api_key_env = '
            f"{policy.api_key_env!r}, replicas = {policy.replicas}; expected 'served' with one policy.base_url and no "
            'key: TRL sends none; train.backend = "torch" takes both'
        )
    if config.run.executor != "local":
        raise ConfigError(
            f'train.backend = "trl_async" got run.executor = {config.run.executor!r}, and does its episodes beside the '
            "trainer; set run.executor to 'local', or train.backend to 'torch'"
        )
    given = {
        "candidates": (section.candidates, 0),
        "retries": (section.retries, ""),
        "branching.branches": (section.branching.branches, 0),
        "partial.oversampling": (section.partial.oversampling, 1),
        "partial.off_policy": (section.partial.off_policy, "kept"),
        "evaluate_every": (section.evaluate_every, 0),
        "refill": (section.refill, 0),
    }
    for key, (got, expected) in given.items():
        if got != expected:
            raise ConfigError(
                f'train.backend = "trl_async" got train.{key} = {got!r}, which wants rollouts of one version; expected '
                f'{expected!r}, or train.backend = "torch"'
            )
    return rolled_out


def rolled_out(
    config: Config, folder: Path, trainer: Trainer, methods: Methods, report: Report
) -> tuple[str, tuple[Weighed, ...]]:
    """Train, and return why a guard stopped it; no texts are measured.

    Raises as `load_tasks`, `PolicyUnavailable` where no server answers or it is gone, `PolicyRefused` for one that
    cannot take adapters, and `TrainingStopped` as `learn` does.
    """
    assert isinstance(trainer, TrlAsyncTrainer)
    served, encoder = config.policy, load_encoder(str(generations.model_directory(config.policy)))
    engine = generations.vllm_engine(served)
    profile = generations.profile_of(served)

    def speak(version: int) -> TokenPolicy:
        return TokenPolicy(engine, encoder, profile=profile, generation=adapter_name(version))

    environment, plan, policy = make_environment(config), plan_of(config), speak(0)
    with open_store(config, policy.count_tokens, owner=False) as store:
        begin(folder, lambda: outcomes(filter(trainable, store.trajectories())))
        source = Source(
            worlds=[world_of(environment, config, store, policy, folder / SNAPSHOT)],
            plan=plan,
            methods=methods,
            acting=acting_of(config, environment, policy.profile),
            samples=samples,
            expected=lambda: estimates(folder),
        )
        observers = Observers()
        with traced(config, Traced(folder.name, "train", policy, environment.name), observers):
            worker = RolloutWorker(source, speak, Buffer(MAX_STALENESS))
            portions = Portions(plan.chains * plan.length * plan.sampling.rollouts, plan.sampling.rollouts)
            trainer.connect(served.base_url, worker, folder / "served", portions)
            telling = _Telling(trainer, worker, plan, folder, report)
            stopped = telling.trained(portions.rows)
            observers.notify(RunFinished(run_id=folder.name, status="stopped" if stopped else "done", reason=stopped))
    return stopped, ()


class _Telling:
    """Writes down what came of each update, so that a training can go on after it."""

    def __init__(
        self, trainer: TrlAsyncTrainer, worker: RolloutWorker, plan: Plan, folder: Path, report: Report
    ) -> None:
        self._trainer, self._worker, self._plan, self._folder, self._report = trainer, worker, plan, folder, report
        kept = next((path for path in (folder / CHECKPOINT, folder / GOOD) if path.exists()), None)
        progress = trainer.resume(kept) if kept else {"iterations": 0, "batches": 0}
        if not ledger.stopped(folder):
            for name in (HISTORY, METRICS):
                ledger.keep(folder / name, progress["iterations"])
        worker.first = progress["batches"]
        self._told = ledger.lines(folder / METRICS)
        self._came: dict[str, float] = {}
        self._lost = {"stale": 0, "restarts": 0}
        self._since = time.perf_counter()

    def trained(self, rows: int) -> str:
        """Make the updates that are left, of so many rows each, and return why a guard stopped it."""
        left = self._plan.iterations - len(self._told)
        if left > 0 and not ledger.stopped(self._folder):
            self._rows = rows
            self._trainer.run(left, self._note)
        return returned(self._trainer, self._folder) if ledger.stopped(self._folder) else ""

    def _note(self, update: dict[str, float]) -> bool:
        """Write down an update, and return whether training ends here."""
        buffer, notes, number = self._worker.rollout_buffer, self._worker.notes(), len(self._told)
        made = buffer.trained(self._rows)
        if notes:
            self._came = {name: fmean(each.figures[name] for each in notes) for name in notes[0].figures}
        lost = {"stale": buffer.stale, "restarts": self._worker.restarts}
        now = time.perf_counter()
        figures = {"iteration": float(number)} | self._came | {"batches": float(len(notes))}
        figures |= {name: float(count - self._lost[name]) for name, count in lost.items()}
        figures |= {"waiting": float(buffer.qsize()), "rows": float(self._rows), "seconds": now - self._since} | update
        self._lost, self._since = lost, now
        self._worker.first = max([self._worker.first, *(1 + each.batch for each in made)])
        versions = Counter(each.sample.model_version for each in made)
        line = {"iteration": number, "episodes": sorted({each.episode for each in made}), "versions": versions}
        ledger.append(self._folder / HISTORY, line | {OUTCOMES: summed(notes)})
        ledger.append(self._folder / METRICS, figures)
        self._told.append(figures)
        settle(self._trainer, self._plan, self._folder, self._told, {"batches": self._worker.first})
        self._report(figures | {"iterations": float(self._plan.iterations)})
        return bool(ledger.stopped(self._folder))
