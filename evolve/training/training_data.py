"""Episodes of the journal that a policy may be trained on, and those left out, with the reason.

Taken are graded episodes of train tasks that the run itself did, further attempts (`run.attempts`) included, under the
policy that is to be trained. Left out, and counted: tasks of held-out splits (they would leak into every figure),
episodes of gates and controls, ungraded ones, those of other models, and those whose tokens are not known. What other
models solved, and how the world itself solves its tasks, is offered apart, where it is asked for: it is no sample of
the policy, and stands in no group.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from pydantic import Field

from evolve.episode.arms import FURTHER, GOLD, MAIN, SHOWN_HOW
from evolve.training.batches import ScoredEpisode
from evolve.training.estimates import outcomes
from evolve.training.experts import Author
from evolve.training.turns import Replies, TurnReader, turns_of
from memory.records import Frozen, Trajectory
from policies.rl.tracker import BetaTracker

TRAINED_SPLITS = ("train",)
ARMS = (MAIN, *FURTHER, GOLD)
USEFUL = (0.2, 0.8)
"""Success rates of tasks whose groups are likely to teach."""


class Offer(Frozen):
    """What was found."""

    successes: tuple[Trajectory, ...] = ()
    failures: tuple[Trajectory, ...] = ()
    experts: tuple[Trajectory, ...] = ()
    """Successes of other models, and the world's own solutions (`train.sft.experts`)."""
    left_out: dict[str, int] = Field(default_factory=dict)
    """Reason -> episodes."""
    reflections: int = 0
    """Reflections from which came what gates measured to help (`training.internalise`)."""

    @property
    def pairs(self) -> tuple[tuple[Trajectory, Trajectory], ...]:
        """A failure and a success of one task: what was done, and what should have been."""
        right = {episode.task.id: episode for episode in self.successes}
        return tuple((wrong, right[wrong.task.id]) for wrong in self.failures if wrong.task.id in right)

    @property
    def groups(self) -> dict[str, tuple[Trajectory, ...]]:
        """Scenario (or task, where there are none) -> its episodes, of those that did not always end alike."""
        found: dict[str, list[Trajectory]] = defaultdict(list)
        for episode in (*self.successes, *self.failures):
            found[_group(episode)].append(episode)
        return {name: tuple(some) for name, some in found.items() if len({each.success for each in some}) > 1}

    def difficulty(self) -> dict[str, int]:
        """Return how many tasks almost never succeed, sometimes do, and almost always do, by their estimates.

        The edges are where a group of eight is still mixed with a chance of 0.83.
        """
        tracker = BetaTracker()
        counts = outcomes((*self.successes, *self.failures))
        for task, (successes, attempts) in counts.items():
            tracker.start(task, successes, attempts)
        rates = [tracker.value(task) for task in counts]
        return {
            "too_easy": sum(rate > USEFUL[1] for rate in rates),
            "useful": sum(USEFUL[0] <= rate <= USEFUL[1] for rate in rates),
            "too_hard": sum(rate < USEFUL[0] for rate in rates),
        }

    def families(self) -> list[dict[str, object]]:
        """Return for each family of tasks (or scenario) how many successes and failures there are, by name."""
        counted = {True: Counter(map(_family, self.successes)), False: Counter(map(_family, self.failures))}
        names = sorted({*counted[True], *counted[False]})
        return [{"family": name, "successes": counted[True][name], "failures": counted[False][name]} for name in names]


def offer(
    trajectories: Iterable[Trajectory],
    replies: Replies,
    read: TurnReader = turns_of,
    author: Callable[[Trajectory], Author] = lambda episode: "expert" if episode.arm in SHOWN_HOW else "own",
    *,
    experts: bool = False,
) -> Offer:
    """Return what some episodes offer; `read` must know their turns.

    `author` tells who did an episode: of an expert's the successes alone are offered, and only with `experts`.
    """
    found: dict[bool, list[Trajectory]] = {True: [], False: []}
    taught: list[Trajectory] = []
    solved: set[str] = set()
    left_out: Counter[str] = Counter()
    for episode in trajectories:
        reason, by = _unfit(episode), author(episode)
        if not reason and by != "own" and not (experts and by == "expert" and episode.success):
            by_world = episode.arm == GOLD
            reason = "done by the world itself" if by_world else f"done by another model ({episode.policy})"
        if not reason and episode.arm == GOLD and episode.task.id in solved:
            reason = "the world's own solution once more"
        reason = reason or ("" if read(episode, replies) else "token ids are not known")
        if reason:
            left_out[reason] += 1
            continue
        if episode.arm == GOLD:
            solved.add(episode.task.id)
        (found[episode.success] if by == "own" else taught).append(episode)
    return Offer(
        successes=tuple(found[True]), failures=tuple(found[False]), experts=tuple(taught), left_out=dict(left_out)
    )


def trainable(episode: Trajectory) -> bool:
    """Tell whether an episode is graded work of the agent on a train task, whatever is known of its tokens."""
    return episode.arm not in SHOWN_HOW and not _unfit(episode)


def episodes(chosen: Sequence[Trajectory]) -> tuple[ScoredEpisode, ...]:
    """Return episodes with their success as the reward; those of one scenario are compared with each other."""
    return tuple(
        ScoredEpisode(trajectory=each, rewards={"outcome": float(each.success)}, group=_group(each)) for each in chosen
    )


def _group(episode: Trajectory) -> str:
    return episode.task.scenario or episode.task.id


def _unfit(episode: Trajectory) -> str:
    if episode.erased:
        return "forgotten"
    if episode.task.split not in TRAINED_SPLITS:
        return f"split {episode.task.split!r} is held out"
    if episode.arm not in ARMS:
        return f"arm {episode.arm!r} is no work of the run"
    if episode.outcome is None:
        return "not graded"
    return ""


def _family(episode: Trajectory) -> str:
    return str(episode.task.metadata.get("family") or episode.task.scenario or episode.task.environment)
