"""Runs a training of a workspace from its configuration to a new generation of its policy: a candidate, never live.

All of a training stands in `policies/training/<name>` of the workspace; the same name goes on where it stopped. What
was learned as text is frozen for the whole training, so that its rollouts differ by their seeds and weights alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import dropwhile
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evolve.config.model import Config
from evolve.config.training import GROUPS, PAIRED
from evolve.episode.injection import shown_again
from evolve.episode.prompting import briefing, demonstrated
from evolve.errors import ConfigError
from evolve.generations import workspace_registry as generations
from evolve.loop.assembly import make_environment, open_store
from evolve.loop.nodes.judge import judged
from evolve.loop.prompt_replay import temperature_of
from evolve.loop.runs import alone, settings_of
from evolve.progress import Observers, RunFinished
from evolve.protocols import max_steps_of
from evolve.telemetry.described import Traced
from evolve.telemetry.start import traced
from evolve.training import ledger, resumption
from evolve.training.admission import Weighed
from evolve.training.asynchronous import asynchronously
from evolve.training.evaluation import best
from evolve.training.experts import author_of, either
from evolve.training.internalise import Internalising, reflection_examples
from evolve.training.known_worlds import runs_elsewhere
from evolve.training.ledger import HISTORY, METRICS
from evolve.training.preferred import Pairs, fit_pairs, preference_pairs, require_pairs_fit
from evolve.training.retokenized import Retelling, Saying
from evolve.training.rollout_policy import require_hosted
from evolve.training.supervised import fit, group_examples, success_examples
from evolve.training.tracker_export import require_tracker, tracked
from evolve.training.training_data import Offer, offer
from evolve.training.turns import TurnReader, turns_of
from evolve.training.workspace_rollouts import Report, left_out, methods_of, rolled_out
from memory.records import Frozen, Outcome, Trajectory
from memory.store import Store
from policies.generations.adapters import inspect_weights
from policies.generations.base_model import base_of
from policies.generations.generation_records import Generation
from policies.generations.generation_registry import DATABASE
from policies.generations.storage import version_name
from policies.generations.whole_model import is_whole
from policies.local.loading import load_encoder
from policies.rl.backends import make_trainer
from policies.rl.optimising import OptimiserOptions
from policies.rl.preference import PREFERENCES
from policies.rl.protocols import PolicyLoss
from policies.rl.trainer import NothingToPublish, Trainer

Named = Callable[[str], None]
"""Is told the name of a training when it begins."""
BASE = "base"
"""What a training begins from where no generation is live."""


class Trained(Frozen):
    """What came of a training."""

    name: str
    folder: Path
    generation: str
    """The candidate that it published."""
    updates: int
    examples: int = 0
    """Rows that it was trained on: those of the journal, or of all batches of rollouts together."""
    experts: int = 0
    """Rows among them that another model said, or the world itself."""
    tokens: int = 0
    """Trained tokens of these rows."""
    stopped: str = ""
    """Why a guard ended it early; the candidate is then made of the last weights within the limits, or of the best."""
    best_iteration: int | None = None
    """After which iteration its weights solved most held-out tasks; None = not evaluated (`train.evaluate_every`)."""
    eval_success: float | None = None
    """Share of held-out tasks that they solved."""
    weighed: tuple[Weighed, ...] = ()
    """What became of the quarantined texts that its groups measured (`train.candidates`)."""
    left_out: tuple[str, ...] = ()
    """Other worlds of the workspace from which its rollouts drew no task: gone, or their agent is told other things."""


def offered(config: Config) -> Offer:
    """Return what the workspace's journal offers to a training."""
    others = runs_elsewhere(config)
    with open_store(config, len, read_only=True) as store:
        found = _offered(config, store, others)
        return found.model_copy(update={"reflections": len(reflection_examples(store, config.memory.namespace).rows)})


def resume(
    config: Config, name: str | None = None, report: Report = lambda _: None, named: Named = lambda _: None
) -> Trained:
    """Go on with an unfinished training (the latest, where none is named) with the settings that it was begun with.

    Raises `NotFound` and `RunMismatch` as `resumption.unfinished` does, `RunMismatch` also where another generation is
    live by now, or the journal offers other episodes, and `ConfigError` as `require_tracker`.
    """
    chosen, begun, own = resumption.unfinished(config, name, lambda folder: _has_ended(config, folder))
    require_tracker(own.train.tracker)
    if begun.journal:
        groups = begun.recipe == GROUPS
        return train_from_logs(own, begun.recipe, groups=groups, report=report, name=chosen, named=named)
    return train(own, begun.recipe, report, chosen, named)


def _has_ended(config: Config, folder: Path) -> bool:
    """Tell whether a training's adapter is a generation, or it had nothing to publish."""
    if ledger.nothing(folder):
        return True
    if not (folder / "adapter").exists() or not (config.workspace / generations.FOLDER / DATABASE).exists():
        return False
    digest = inspect_weights(folder / "adapter", generations.model_directory(config.policy)).sha256
    with generations.open_registry(config.policy, config.workspace, read_only=True) as registry:
        return any(each.sha256 == digest for each in registry.generations())


def train(
    config: Config, recipe: str, report: Report = lambda _: None, name: str = "", named: Named = lambda _: None
) -> Trained:
    """Train by rollouts in the configured environment, and publish the adapter as a candidate; `name`: only that one.

    Raises `BadInput` where no tasks make a chain, `JournalError` where another process does this training,
    `ConfigError` for a split without tasks and for keys of `[train]` that do not go together, and `TrainingStopped` as
    `learn` does.
    """
    methods = methods_of(config)
    trained = asynchronously(config) if config.train.backend == "trl_async" else rolled_out
    with _training(config, recipe, config.train.iterations, name=name, named=named) as (folder, trainer):
        stopped, weighed = trained(config, folder, trainer, methods, report)
        more = {"weighed": weighed, "left_out": left_out(folder)}
        return _published(config, trainer, folder, recipe, stopped).model_copy(update=more)


def train_from_logs(
    config: Config,
    recipe: str,
    *,
    groups: bool = False,
    report: Report = lambda _: None,
    name: str = "",
    named: Named = lambda _: None,
) -> Trained:
    """Train on the journal alone, and publish the adapter as a candidate; `name`: only that training.

    On its successes; with `groups` on scenarios that did not always end alike, by `train.filter` and
    `train.advantages`; with the recipes of `PAIRED` on tasks that once succeeded and once failed. The latter two take
    the token ids that were sampled.
    Raises `BadInput` where the journal offers none, and `ConfigError` as `require_pairs_fit`.
    """
    _require_journal_fits(config, recipe, groups)
    section, others = config.train, runs_elsewhere(config)
    paired = recipe in PAIRED
    if paired:
        require_pairs_fit(config, recipe)
    with open_store(config, len, read_only=True) as store:
        found = _offered(config, store, others, groups=groups or paired)
        if paired:
            preference = PREFERENCES[recipe](section.preference.beta, section.preference.gamma)
            given = preference_pairs(found, store.get_reply, preference)
        elif groups:
            methods = section.member("advantages"), section.member("filter")
            given = group_examples(found, store.get_reply, *methods, _at_temperature(config, store))
        else:
            given = success_examples(found, store.get_reply, _readers(config, store, others))
            if section.sft.reflections:
                given = given.joined(reflection_examples(store, config.memory.namespace))
    batches = section.sft.passes * -(-given.units // section.sft.batch)
    with _training(config, recipe, batches, given.digest, name, named) as (folder, trainer):
        observers = Observers()
        with traced(config, Traced(folder.name, "train", None, config.environment.name), observers):
            how = {"epochs": section.sft.passes, "batch": section.sft.batch}
            if isinstance(given, Pairs):
                fit_pairs(trainer, given, **how, folder=folder, report=report)
            else:
                fit(trainer, given, **how, folder=folder, report=report)
            observers.notify(RunFinished(run_id=folder.name, status="done", reason=""))
        made = _published(config, trainer, folder, recipe)
    tokens = sum(row.trained for row in given.rows)
    return made.model_copy(update={"examples": len(given.rows), "experts": given.experts, "tokens": tokens})


def _require_journal_fits(config: Config, recipe: str, groups: bool) -> None:
    """Raise `ConfigError` for keys of `[train]` that a training on the journal cannot take."""
    section = config.train
    if section.backend == "trl_async":
        raise ConfigError(
            f"got train.backend = 'trl_async', which trains while it rolls out; evolve train {recipe} makes no "
            "rollouts: set train.backend = 'torch'"
        )
    if section.evaluate_every or section.refill or section.reuse.share:
        raise ConfigError(
            f"got train.evaluate_every = {section.evaluate_every}, train.refill = {section.refill} and "
            f"train.reuse.share = {section.reuse.share}; a training on the journal makes no rollouts and takes none of "
            "them: set them to 0"
        )
    if section.correction.name and not groups:
        raise ConfigError(
            f"got train.correction = {section.correction.name!r}, which weighs tokens by how likely they were when "
            f"they were sampled; evolve train {recipe} knows that of some alone, or weighs by itself: leave it out"
        )


def _offered(config: Config, store: Store, others: Collection[str], *, groups: bool = False) -> Offer:
    """Return what a journal offers; `others` are its runs in other worlds.

    `groups` takes the ids that were sampled, and nothing of other models.
    """
    _, said = _known(config, store)
    read, experts = (turns_of, False) if groups else (said, config.train.sft.experts)
    taken = _taken(config, store, others)
    return offer(taken, store.get_reply, read, author_of(config, store), experts=experts)


def _taken(config: Config, store: Store, others: Collection[str]) -> Iterator[Trajectory]:
    """Yield the journal's episodes; without those of `others`, runs in other worlds, where nothing is replayed.

    Where no grade may be read (`run.label_free`), they have the outcome that was judged of them, or none.
    """
    for each in store.trajectories():
        if config.train.replay or each.run_id not in others:
            yield _ungraded(each, config, store) if config.run.label_free else each


def _ungraded(episode: Trajectory, config: Config, store: Store) -> Trajectory:
    right = judged(episode, config, store)
    outcome = None if right is None else Outcome(success=right, reward=float(right))
    return episode.model_copy(update={"outcome": outcome})


def _readers(config: Config, store: Store, others: Collection[str]) -> list[TurnReader]:
    """Return how successes are read: as they were, without what was learned, or both.

    Those of other worlds always as they were: what their playbooks say does not hold in the configured one.
    """
    profile, environment = generations.profile_of(config.policy), make_environment(config)
    whole, said = _known(config, store)
    told_again = Internalising(
        encoder=load_encoder(str(generations.model_directory(config.policy))),
        profile=profile,
        world=briefing(environment, profile),
        shown=lambda episode: shown_again(store, episode.injected),
        read=said,
        demonstration=demonstrated(environment, profile),
    )
    dropped = _of(told_again, lambda episode: episode.run_id not in others)
    elsewhere = _of(whole, lambda episode: episode.run_id in others)
    return {"kept": [whole], "dropped": [dropped, elsewhere], "both": [whole, dropped]}[config.train.sft.context]


def _of(read: TurnReader, wanted: Callable[[Trajectory], bool]) -> TurnReader:
    """Return a reader that knows the turns of some episodes alone."""
    return lambda episode, replies: read(episode, replies) if wanted(episode) else None


def _known(config: Config, store: Store) -> tuple[TurnReader, TurnReader]:
    """Return how whole turns are read, and how what was said alone: by the ids that were sampled, or written anew in
    the template of the weights where their server told no ids, or another model said it."""
    told_no_ids = config.policy.name == "openai" and bool(config.policy.weights)
    if not (told_no_ids or config.train.sft.experts):
        return turns_of, turns_of
    saying = Saying(load_encoder(str(generations.model_directory(config.policy))))
    retelling = Retelling(saying, store, config.root)
    if told_no_ids:  # an expert's are read alike
        return retelling, saying
    author = author_of(config, store)
    return either(turns_of, retelling, author), either(turns_of, saying, author)


def _at_temperature(config: Config, store: Store) -> Callable[[Trajectory], bool]:
    """Return what tells whether an episode was sampled at `train.temperature`: its log-probabilities are those of the
    policy that is trained. A greedy reply tells those at 1.
    """

    @cache
    def settings(run_id: str) -> Config | None:
        return settings_of(store, run_id, config.root)

    def told(episode: Trajectory) -> bool:
        asked = settings(episode.run_id)
        return asked is not None and (temperature_of(asked, episode) or 1.0) == config.train.temperature

    return told


@contextmanager
def _training(
    config: Config, recipe: str, batches: int, data: str = "", name: str = "", named: Named = lambda _: None
) -> Generator[tuple[Path, Trainer]]:
    """Give where a training stands, made when missing, and a trainer that begins at the live generation.

    `batches` is of how many it learns at most.
    No other process does this training meanwhile. Its figures go to `train.tracker` as they come.
    """
    live = generations.live_generation(config.policy, config.workspace)
    if not name:  # one that is gone on with is looked at below
        _require_weights_fit(config, live)
    if config.train.backend == "tinker":
        require_hosted(config)
    section = config.train
    loss, correction = section.member("loss"), section.member("correction") if section.correction.name else None
    today = name_of(config, recipe, live, data)
    folder = ledger.folder_of(config.workspace, name or today)
    start = live.version if live else BASE
    if name:
        resumption.require_same(folder, start, today if data else name)
    folder.mkdir(parents=True, exist_ok=True)
    taken = f"{folder.name} is under way in another process; wait for it, or stop it"
    with (
        alone(folder / ledger.LOCK, taken),
        make_trainer(
            section.backend,
            generations.model_directory(config.policy),
            loss,
            _optimising(config, batches, loss),
            start=live.adapter if live else None,
            correction=correction,
        ) as trainer,
    ):
        settings = config.model_dump(mode="json", exclude={"root"})
        resumption.note(folder, resumption.Begun(recipe=recipe, journal=bool(data), start=start, config=settings))
        (folder / ledger.NOTHING).unlink(missing_ok=True)  # the same command may find another generation live by now
        named(folder.name)
        try:
            with tracked(config, folder.name):
                yield folder, trainer
        except NothingToPublish as nothing:
            ledger.write(folder / ledger.NOTHING, str(nothing))
            raise


def _require_weights_fit(config: Config, live: Generation | None) -> None:
    """Raise `ConfigError` for a whole model that no server could take, for an adapter of one that is live, for another
    rank than that of the live adapter, and for a `policy.adapter` that is not live: a training goes on from what is."""
    name, weights = config.policy.name, config.train.weights
    version, named = live.version if live else version_name(0), config.policy.adapter
    if named not in (None, version):
        raise ConfigError(
            f"got policy.adapter = {named!r}, and a training goes on from the live generation, {version}; take the key "
            "out, or, where it names a generation, let that live first (`evolve policy promote`)"
        )
    if weights == "full" and name not in ("pocket", "local"):
        raise ConfigError(
            f"got train.weights = 'full' with policy.name = {name!r}, whose server takes adapters alone; train with "
            "weights = 'lora', or act in this process (policy.name = 'local', policy.model = the folder)"
        )
    if weights == "lora" and live is not None and live.adapter is not None and is_whole(live.adapter):
        raise ConfigError(
            f"{live.version} is live, a whole model, of which no adapter can be published; set train.weights = 'full' "
            "to go on from it, or roll back (`evolve policy rollback`)"
        )
    if weights == "lora" and live is not None and live.adapter is not None:
        held = inspect_weights(live.adapter, None).rank
        if held != config.train.rank:
            raise ConfigError(
                f"{version} is live, an adapter of rank {held}, got train.rank = {config.train.rank}; a training goes "
                f"on from that adapter: set train.rank = {held}, or roll back to the base (`evolve policy rollback`)"
            )


def name_of(config: Config, recipe: str, live: Generation | None, data: str = "") -> str:
    """Return the name of a training: of its recipe, its settings, what it began from and what it was given."""
    decides = [recipe, config.digest, live.version if live else BASE, data]
    return f"{recipe}-{hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:10]}"


def _optimising(config: Config, batches: int, loss: PolicyLoss) -> OptimiserOptions:
    section = config.train
    shared = section.model_dump(include=set(OptimiserOptions.model_fields))
    own = {
        "seed": config.run.seed,
        "horizon": batches * section.epochs * section.minibatches,
        "hosted_model": section.tinker.base_model,
    }
    if loss.aggregation == "seq-mean-token-sum-norm":
        steps = max_steps_of(make_environment(config), config.environment.max_steps)
        own["max_tokens"] = config.policy.max_tokens * steps
    try:
        return OptimiserOptions.model_validate(shared | own)
    except ValidationError as wrong:
        raise ConfigError(f"[train] {wrong.errors()[0]['msg'].removeprefix('Value error, ')}") from wrong


def _published(config: Config, trainer: Trainer, folder: Path, recipe: str, stopped: str = "") -> Trained:
    """Write the adapter and register it; a training that was published before is not published again.

    Raises `NothingToPublish` where no update was made, and for weights that are those of the live generation: no update
    had a gradient, or all that followed one were made at a learning rate of 0.
    """
    adapter, told = folder / "adapter", _seen(folder)
    chosen = best(folder)
    found: dict[str, Any] = {}
    if chosen is not None:
        found = {"best_iteration": chosen.iteration, "eval_success": chosen.success}
    if not trainer.updates:
        raise NothingToPublish(_untrained(config, told))
    if _without_effect(told):
        raise NothingToPublish(_unchanged(config))
    if not adapter.exists():
        trainer.save(adapter)
    model = generations.model_directory(config.policy)
    with generations.open_registry(config.policy, config.workspace) as registry:
        digest = inspect_weights(adapter, model).sha256
        if digest == registry.live().sha256:
            raise NothingToPublish(_unchanged(config))
        known = next((each for each in registry.generations() if each.sha256 == digest), None)
        settings: dict[str, Any] = {"recipe": recipe, "config": config.digest, **config.train.model_dump(mode="json")}
        settings |= found | ({"stopped": stopped} if stopped else {})
        made = known or registry.publish(adapter, base=base_of(model), config=settings)
    return Trained(
        name=folder.name,
        folder=folder,
        generation=made.version,
        updates=trainer.updates,
        examples=round(sum(line.get("rows", 0) for line in told)),
        tokens=round(sum(line.get("tokens", 0) for line in told)),
        stopped=stopped,
        **found,
    )


def _seen(folder: Path) -> list[dict[str, float]]:
    """Return the figures of what the weights were trained on: those of later iterations, which are discarded where a
    guard stopped or an earlier one was best, stay in `metrics.jsonl` alone."""
    seen = len(ledger.lines(folder / HISTORY))
    return [each for each in ledger.lines(folder / METRICS) if each.get("iteration", each.get("epoch", 0)) < seen]


def _unchanged(config: Config) -> str:
    """Return why updates changed nothing, and what to do."""
    live = generations.live_generation(config.policy, config.workspace)
    return (
        f"the weights are still those of {live.version if live else version_name(0)}, which is live: no batch had a "
        "gradient at a learning rate above 0, so there is nothing to publish; `evolve train status` tells the figures: "
        "more rollouts of a task or a higher train.temperature make groups that differ, more solved tasks give "
        "examples, and of train.warmup_updates the first is made at rate 0"
    )


def _without_effect(told: Sequence[Mapping[str, float]]) -> bool:
    """Tell whether every update is known to have left the weights as they were: no gradient came before it, which the
    optimiser remembers, or its learning rate was 0."""
    made = [line for line in told if line.get("rows")]
    moved = dropwhile(lambda line: line.get("gradient_norm") == 0, made)
    return bool(made) and all(line.get("learning_rate") == 0 for line in moved)


def _untrained(config: Config, told: Sequence[Mapping[str, float]]) -> str:
    """Return why a training made no update, and what to do, by the figures of its iterations."""
    episodes, section = round(sum(line.get("episodes", 0) for line in told)), config.train
    if not episodes:
        why = "no episode was graded with its token ids known"
        do = "`evolve train status --json` counts what was left out"
    elif section.filter.name == "zero_variance":
        why = f"no group differed: in all {episodes} episodes the rollouts of a task earned the same"
        do = (
            "raise train.rollouts, train.chains, train.refill or train.temperature, or train on tasks that are solved "
            "now and then"
        )
    else:
        why = f"train.filter = {section.filter.name!r} left none of {episodes} episodes"
        do = "choose another train.filter, or let episodes end within policy.max_tokens and environment.max_steps"
    return f"{why}; nothing was trained, and there is no candidate; {do}"
