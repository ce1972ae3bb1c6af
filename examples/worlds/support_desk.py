"""A support desk with tools: an agent refunds orders and closes tickets, and has to find out how the desk wants it.

    evolve run --env examples.worlds.support_desk:SupportDesk

How urgent a refund is and which code closes a ticket are drawn from a seed, and a customer is verified first. A wrong
code is no error: only the grade tells it. `helper` stands for a model: it guesses, and heeds what it has read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

from langchain_core.tools import BaseTool, StructuredTool

from evolve import (
    Check,
    Message,
    Outcome,
    Reply,
    SamplingParams,
    ScriptedPolicy,
    Task,
    ToolCall,
    ToolsEnvironment,
    Transcript,
)

URGENCIES, CODES = ("low", "normal", "high"), ("done", "settled", "paid", "resolved")
SIZES = {"train": 40, "dev": 24, "test_normal": 30}


class SupportDesk(ToolsEnvironment):
    """Tickets about refunds. `seed` draws the rules."""

    seedless = True
    max_steps = 8

    def __init__(self, seed: int = 0) -> None:
        draw = Random(f"support desk {seed}")
        self.urgency, self.code = draw.choice(URGENCIES), draw.choice(CODES)
        super().__init__(self._tools, self._grade, _tickets(), name="support_desk", description="You refund orders.")

    def _tools(self, task: Task) -> list[BaseTool]:
        verified: list[int] = []

        def verify(ticket: int) -> str:
            """Verify the customer of a ticket."""
            verified.append(ticket)
            return "verified"

        def refund(ticket: int, urgency: str) -> str:
            """Refund the order of a ticket. Urgency: low, normal or high."""
            if ticket not in verified:
                raise PermissionError("verify must be called before refund")
            if urgency != self.urgency:
                raise ValueError("the bank refused the refund")
            return "refunded"

        def close(ticket: int, code: str) -> str:
            """Close a ticket with the code done, settled, paid or resolved."""
            return "closed"

        functions: tuple[Callable[..., str], ...] = (verify, refund, close)
        return [StructuredTool.from_function(function) for function in functions]

    def _grade(self, task: Task, transcript: Transcript, tools: object) -> Outcome:
        done = {call.name: call for call in transcript.calls if call.error is None}
        code = done["close"].arguments["code"] if "close" in done else "nothing"
        refused = sum(call.error is not None for call in transcript.calls)
        checks = (
            Check(name="refunded", passed="refund" in done),
            Check(name="closed", passed=code == self.code, detail=f"close code: expected {self.code}, got {code}"),
            Check(name="undisturbed", passed=refused <= 1, detail=f"{refused} calls were refused"),
        )
        success = all(check.passed for check in checks)
        return Outcome(success=success, reward=sum(check.passed for check in checks) / len(checks), checks=checks)


def _tickets() -> list[Task]:
    return [
        Task(id=f"{split}-{at}", instruction=f"Refund and close ticket {1000 * (place + 1) + at}.", split=split)
        for place, (split, size) in enumerate(SIZES.items())
        for at in range(size)
    ]


def helper(section: object = None) -> ScriptedPolicy:
    """Return a stand-in for a model."""
    return ScriptedPolicy(_help, name="helper", version="1")


def _help(messages: Sequence[Message], params: SamplingParams) -> Reply:
    read = "\n".join(message.content for message in messages)
    ticket = int(re.findall(r"close ticket (\d+)", read)[-1])
    done = [message.content for message in messages if message.role == "tool"]
    calls = [call for message in messages for call in message.tool_calls]
    if "closed" in done:
        return Reply(text="Done.")
    if "refunded" in done:
        name, more = "close", {"code": next(iter(re.findall(r"close: code must be (\w+)", read)), CODES[0])}
    elif "verify" in read.replace("Verify", "") and "verified" not in done and "must" in read:
        name, more = "verify", {}
    else:
        tried = [call.arguments["urgency"] for call, answer in zip(calls, done, strict=True) if "bank" in answer]
        known = re.findall(r"refund: urgency must be (\w+)", read)
        guesses = sorted(URGENCIES, key=lambda urgency: Random(f"{ticket} {urgency}").random())
        name, more = "refund", {"urgency": next(each for each in (*known, *guesses) if each not in tried)}
    return Reply(text="", tool_calls=(ToolCall(id=str(len(calls)), name=name, arguments={"ticket": ticket, **more}),))
