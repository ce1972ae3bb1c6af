"""Claim skills_3: of 200 attempts to get out of the sandboxes none succeeds; a step costs under 1 ms, 100 share a pool.

Success is an effect on the host (benchmarks/escape_suite.py); the same attempts run with no sandbox in a throwaway
process are the control. What the process runner says it does not cover is not among them. Small limits: 32 MiB, 0.5 s.
"""

from __future__ import annotations

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.claim import Row, at_least, at_most, begin, exactly
from benchmarks.escape_suite import ABOUT_THE_RUNNER, Attempt, attempt_in, attempt_unprotected, load
from skills.protocols import Sandbox
from skills.sandbox.monty import MontySandbox, shared
from skills.sandbox.process import ProcessSandbox

QUICK_STEP = 7
"""A small sample tries every 7th attempt where each costs a process."""
EPISODES, STEPS, TIMED = 100, 12, 500
STEP = """
total = 0
for bill in apps.mail.bills(limit=5):
    if bill["amount"] > 10 and "rent" not in bill["text"]:
        total += bill["amount"]
apps.mail.echo(f"{total:.2f}")
print(total)
"""
BILLS = [{"amount": 7.5 * n, "text": f"bill {n}, {'rent' if n % 3 == 0 else 'food'}"} for n in range(5)]


def escapes(name: str, sandbox: Sandbox, attempts: list[Attempt]) -> list[Row]:
    """Run every attempt and count what got out, what ended without an error, and whether work goes on."""
    out = silent = working = 0
    for attempt in attempts:
        trial = attempt_in(sandbox, attempt)
        if trial.effects or not trial.error:
            print(f"{name}: {attempt.group}, {attempt.name}: {trial}", flush=True)
        out += bool(trial.effects)
        silent += not trial.error
        following = sandbox.session({"mail": {"echo": lambda value: value}})
        working += following.run("print(apps.mail.echo(1))").stdout == "1\n"
        following.close()
    n = len(attempts)
    return [
        Row(f"{name}: attempts that succeed", out, exactly(0), n=n),
        Row(f"{name}: attempts that end in no error", silent, exactly(0), n=n),
        Row(f"{name}: sessions right after an attempt that work", working, exactly(n), n=n),
    ]


def control(attempts: list[Attempt]) -> Row:
    """Run attempts unprotected: most must succeed, or the detector sees nothing."""
    worked = sum(bool(attempt_unprotected(attempt).effects) for attempt in attempts)
    return Row(
        "without a sandbox: the same attempts that succeed", worked, at_least(0.9 * len(attempts)), n=len(attempts)
    )


def step_cost(sandbox: Sandbox, steps: int) -> list[Row]:
    """Measure what a step takes beside the time inside its two host calls, in a session that goes on."""
    inside = 0.0

    def bills(limit: int) -> list[dict[str, object]]:
        nonlocal inside
        entered = time.perf_counter()
        found: list[dict[str, object]] = [dict(bill) for bill in BILLS[:limit]]
        inside += time.perf_counter() - entered
        return found

    session = sandbox.session({"mail": {"bills": bills, "echo": lambda _text: None}})
    costs: list[float] = []
    for _ in range(steps):
        inside, started = 0.0, time.perf_counter()
        result = session.run(STEP)
        costs.append(1000 * (time.perf_counter() - started - inside))
        assert result.error is None, result
    session.close()
    return [
        Row("a step with two host calls, beyond these calls: p50, ms", statistics.median(costs), at_most(1.0), n=steps),
        Row("the same: p95, ms", statistics.quantiles(costs, n=20)[-1], n=steps),
    ]


def parallel(sandbox: Sandbox) -> list[Row]:
    """Run 100 episodes that are all open at once in one pool; each must see its own state and its own host alone."""
    gate = threading.Barrier(EPISODES)

    def episode(number: int) -> bool:
        heard: list[int] = []
        session = sandbox.session({"mail": {"echo": heard.append}})
        gate.wait()
        right = session.run(f"mine = [{number}]").error is None
        for step in range(STEPS):
            result = session.run(f"mine.append(mine[-1] + 1)\napps.mail.echo(mine[-1])\nprint(len(mine), {step})")
            right = right and result.stdout == f"{step + 2} {step}\n"
        session.close()
        return right and heard == list(range(number + 1, number + 1 + STEPS))

    started = time.perf_counter()
    with ThreadPoolExecutor(EPISODES) as threads:
        right = sum(threads.map(episode, range(EPISODES)))
    return [
        Row("episodes open at once in one pool that end right", right, exactly(EPISODES), n=EPISODES),
        Row(f"the same: all {EPISODES * STEPS} steps, s", time.perf_counter() - started),
    ]


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed."""
    claim = begin("skills_3_sandbox", __doc__)
    attempts = list(load())
    some = attempts[:: QUICK_STEP if claim.quick else 1]
    monty, process = MontySandbox(), ProcessSandbox(same_user=True)
    rows = [Row("distinct attempts", len({attempt.code for attempt in attempts}), at_least(100))]
    rows += escapes("monty", monty, attempts)
    rows += escapes("process", process, some)
    rows.append(control([attempt for attempt in some if attempt.group not in ABOUT_THE_RUNNER]))
    rows += step_cost(shared(), TIMED)
    rows += parallel(shared())
    for pool in (monty, process, shared()):
        pool.close()
    claim.conclude(rows)


if __name__ == "__main__":
    main()
