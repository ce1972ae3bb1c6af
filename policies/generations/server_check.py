"""Does the server compute the adapter it was given? It answers a few prompts, and peft scores the same ids.

Two questions, since each alone has been answered wrongly by real servers (vllm#34186, verl#7495): are the served
log-probabilities those of the reference with the adapter, and do they differ from those of the base model? It asks as
every request does, so it disturbs none (see `ScoringEngine` for what does).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from memory.records import Frozen
from policies.encoding import ChatEncoder
from policies.generations.engine import AdapterEngine, ScoringEngine
from policies.protocols import Message, SamplingParams

TOLERANCE = 1e-4
"""Largest difference of a log-probability in fp32 (1e-6 is what was measured); bf16 needs about 0.05."""
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
    tolerance: float
    to_reference: float
    """Served against the reference with the adapter."""
    to_base: float
    """Served against the base model."""

    @property
    def failures(self) -> tuple[str, ...]:
        """What is wrong, in sentences; nothing = it passed."""
        found: list[str] = []
        if not self.tokens:
            found.append("nothing was compared; give prompts that are answered")
        if not self.to_reference <= self.tolerance:  # not a number is a failure, too
            found.append(
                f"the served log-probabilities are {self.to_reference:.3g} off the reference, expected at most "
                f"{self.tolerance:g}: the server computes something else"
            )
        if not self.to_base > 2 * self.tolerance:
            found.append(
                f"what is served is within {self.to_base:.3g} of the base model, expected more than "
                f"{2 * self.tolerance:g}: the adapter is ignored, or changes nothing"
            )
        return tuple(found)

    @property
    def passed(self) -> bool:
        """True when it may go live."""
        return not self.failures


def probes(encoder: ChatEncoder, texts: Sequence[str] = ()) -> tuple[tuple[int, ...], ...]:
    """Return prompts in the ids of a tokenizer: the given texts, or a few that fit any policy where there are none."""
    return tuple(encoder.encode([Message(role="user", content=text)]) for text in texts or TEXTS)


async def canary(
    served: AdapterEngine, reference: ScoringEngine, version: str, prompts: Prompts, *, tolerance: float = TOLERANCE
) -> CanaryReport:
    """Let the served version complete the prompts greedily, score that with the reference and its base, and report.

    `version` is loaded in both engines.
    """
    to_reference: list[float] = []
    to_base: list[float] = []
    said = await asyncio.gather(*(served.sample(prompt, GREEDY, version) for prompt in prompts))
    for prompt, done in zip(prompts, said, strict=True):
        to_reference += differences(done.logprobs, await reference.logprobs(prompt, done.token_ids, version))
        to_base += differences(done.logprobs, await reference.logprobs(prompt, done.token_ids, None))
    return CanaryReport(
        version=version,
        tokens=len(to_reference),
        tolerance=tolerance,
        to_reference=largest(to_reference),
        to_base=largest(to_base),
    )


def differences(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Return the absolute differences, token by token."""
    return [abs(a - b) for a, b in zip(one, other, strict=True)]


def largest(values: Sequence[float]) -> float:
    """Return the largest value, not a number if one of them is, 0 for none."""
    return next((value for value in values if value != value), max(values, default=0.0))
