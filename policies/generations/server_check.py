"""Does the server compute the adapter it was given? It answers a few prompts, and peft scores the same ids.

Two questions, since each alone has been answered wrongly by real servers (vllm#34186, verl#7495): are the served
log-probabilities those of the reference with the adapter, and is what the adapter changes all there? A server that
computes in bfloat16 rounds more than a small adapter changes. So the base is asked too, which tells how far the
server's numbers are from the reference's, and the change is looked for in all tokens together. It asks as every request
does, so it disturbs none (see `ScoringEngine` for what does).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import isnan, nan

from memory.records import Frozen
from policies.encoding import ChatEncoder
from policies.generations.engine import AdapterEngine, Sampled, ScoringEngine
from policies.protocols import Message, SamplingParams

TOLERANCE = 1e-4
"""Largest difference of a log-probability in fp32 (1e-6 is what was measured)."""
ROUNDED = 0.5
"""A served base that is further than this from the reference's is another model: bfloat16 takes some 0.05."""
AS_ROUNDED = 4
"""An adapter's values may be so many times as far from the reference as the base's: both are maxima of few tokens."""
ARRIVED = (0.5, 1.5)
"""Share of the adapter's change that is served, between which it counts as applied, once and by its own scale."""
GREEDY = SamplingParams(max_tokens=16)
TEXTS = (
    "Add 2 and 3.",
    "Write a line of Python that prints the numbers up to three.",
    "Say yes or no: is seven more than five?",
    "Name a day of the week and a colour.",
)
"""Asked where nothing is known of what the policy is for."""
Prompts = Sequence[tuple[int, ...]]


class CanaryReport(Frozen):
    """What a canary found. Differences are of natural-log probabilities, the largest over all tokens."""

    version: str
    tokens: int
    rounded: float
    """The served base against the reference's base: how exactly this server computes."""
    to_reference: float
    """Served against the reference with the adapter."""
    to_base: float
    """Served against the base model."""
    arrived: float
    """Share of what the adapter changes in the reference that is served, by least squares over all tokens: 1 = all of
    it, 0 = the base is served. Not a number where it changes no more than `TOLERANCE`."""

    @property
    def tolerance(self) -> float:
        """Return how far the served values may be from the reference on this server."""
        return max(TOLERANCE, AS_ROUNDED * self.rounded)

    @property
    def failures(self) -> tuple[str, ...]:
        """What is wrong, in sentences; nothing = it passed."""
        found: list[str] = []
        if not self.tokens:
            found.append("nothing was compared; give prompts that are answered")
        if not self.rounded <= ROUNDED:  # not a number is a failure, too
            found.append(
                f"the served base is {self.rounded:.3g} off the reference's, expected at most {ROUNDED:g}: the server "
                "computes another base model"
            )
        if not self.to_reference <= self.tolerance:
            found.append(
                f"the served log-probabilities are {self.to_reference:.3g} off the reference, expected at most "
                f"{self.tolerance:.3g}: the server computes something else"
            )
        if isnan(self.arrived):
            found.append(
                f"no token shows a change above {TOLERANCE:g}: the adapter changes nothing, or no number is told"
            )
        elif not ARRIVED[0] <= self.arrived <= ARRIVED[1]:
            found.append(
                f"of what the adapter changes {self.arrived:.0%} is served (the base is {self.to_base:.3g} off), "
                "expected about 100%: it is ignored, or scaled otherwise"
            )
        return tuple(found)

    @property
    def passed(self) -> bool:
        """True when it may go live."""
        return not self.failures


def probes(encoder: ChatEncoder, texts: Sequence[str] = ()) -> tuple[tuple[int, ...], ...]:
    """Return prompts in the ids of a tokenizer: the given texts, or a few that fit any policy where there are none."""
    return tuple(encoder.encode([Message(role="user", content=text)]) for text in texts or TEXTS)


async def canary(served: AdapterEngine, reference: ScoringEngine, version: str, prompts: Prompts) -> CanaryReport:
    """Let the served version and its base complete the prompts greedily, score that with the reference, and report.

    `version` is loaded in both engines.
    """
    done = await _completed(served, version, prompts)
    plain = await _completed(served, None, prompts)
    said, expected = _values(done), await _scored(reference, version, prompts, done)
    base = await _scored(reference, None, prompts, done)
    return CanaryReport(
        version=version,
        tokens=len(said),
        rounded=largest(differences(_values(plain), await _scored(reference, None, prompts, plain))),
        to_reference=largest(differences(said, expected)),
        to_base=largest(differences(said, base)),
        arrived=_arrived(said, expected, base),
    )


async def _completed(engine: AdapterEngine, version: str | None, prompts: Prompts) -> list[Sampled]:
    return await asyncio.gather(*(engine.sample(prompt, GREEDY, version) for prompt in prompts))


async def _scored(
    engine: ScoringEngine, version: str | None, prompts: Prompts, completed: Sequence[Sampled]
) -> list[float]:
    """Return the log-probability of each completed token, one prompt after the other."""
    found = list[float]()
    for prompt, done in zip(prompts, completed, strict=True):
        found += await engine.logprobs(prompt, done.token_ids, version)
    return found


def _values(completed: Sequence[Sampled]) -> list[float]:
    return [value for done in completed for value in done.logprobs]


def _arrived(said: Sequence[float], expected: Sequence[float], base: Sequence[float]) -> float:
    """Return the slope of what is served against what the adapter should change, both above the base."""
    changes = [one - other for one, other in zip(expected, base, strict=True)]
    if not largest([abs(each) for each in changes]) > TOLERANCE:
        return nan
    served = sum(change * (one - other) for change, one, other in zip(changes, said, base, strict=True))
    return served / sum(change * change for change in changes)


def differences(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Return the absolute differences, token by token."""
    return [abs(a - b) for a, b in zip(one, other, strict=True)]


def largest(values: Sequence[float]) -> float:
    """Return the largest value, not a number if one of them is, 0 for none."""
    return next((value for value in values if value != value), max(values, default=0.0))
