"""Does the server compute the adapter it was given? Fixed ids, scored by the server and by the peft reference.

Two questions, since each alone has been answered wrongly by real servers (vllm#34186, verl#7495): are the served
log-probabilities those of the reference with the adapter, and do they differ from those of the base model?
"""

from __future__ import annotations

from collections.abc import Sequence

from memory.records import Frozen
from policies.encoding import ChatEncoder
from policies.generations.engine import AdapterEngine
from policies.protocols import Message

TOLERANCE = 1e-4
"""Largest difference of a log-probability in fp32 (1e-6 is what was measured); bf16 needs about 0.05."""
TEXTS = (
    ("Add 2 and 3.", "The sum of 2 and 3 is 5."),
    ("Write a line of Python that prints the numbers up to three.", "print(1, 2, 3)"),
    ("Who may be mailed?", "Only people who are in the contacts."),
    ("Say yes or no: is the invoice paid?", "no"),
    ("Name a day of the week and a colour.", "Thursday, green"),
    ("apps.mail.send failed: E17", "result = apps.mail.send(to='ann', text='hello')"),
)


class Probe(Frozen):
    """A prompt and what is scored after it."""

    prompt: tuple[int, ...]
    completion: tuple[int, ...]


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
            found.append("nothing was compared; give probes with completions")
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


def probes(encoder: ChatEncoder) -> tuple[Probe, ...]:
    """Return the fixed probes in the ids of a tokenizer."""
    return tuple(
        Probe(prompt=encoder.encode([Message(role="user", content=asked)]), completion=tuple(encoder.tokens(answer)))
        for asked, answer in TEXTS
    )


async def canary(
    served: AdapterEngine,
    reference: AdapterEngine,
    version: str,
    fixed: Sequence[Probe],
    *,
    tolerance: float = TOLERANCE,
) -> CanaryReport:
    """Score the probes three times (served, reference, base) and report. `version` is loaded in both engines."""
    to_reference: list[float] = []
    to_base: list[float] = []
    for probe in fixed:
        given = await served.logprobs(probe.prompt, probe.completion, version)
        wanted = await reference.logprobs(probe.prompt, probe.completion, version)
        plain = await reference.logprobs(probe.prompt, probe.completion, None)
        to_reference += differences(given, wanted)
        to_base += differences(given, plain)
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
