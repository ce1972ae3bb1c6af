"""Claim loop_5: the loop is a citizen. vLLM's CPU build serves the pocket model; nothing differs from in process.

Asked for the same 50 prompts of the office, greedily, and then given the same learning run: rendered prompts, generated
tokens, episodes and playbook must be identical. Needs `scripts/install_vllm_cpu.sh`; without it nothing is measured.
`EVOLVE_POCKET` names another model directory for a quick run.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.claim import Row, at_most, begin, exactly
from benchmarks.office_arms import folder
from benchmarks.served import Learned, Pair, both, compare, learn, office_prompts, pocket, vllm

PROMPTS = 50
TASKS, QUICK_TASKS = 24, 8


def main() -> None:
    """Measure and record."""
    claim = begin("loop_5_served", __doc__)
    if os.environ.get("EVOLVE_POCKET") and not claim.quick:
        sys.exit("EVOLVE_POCKET is set; results are stored of the shipped weights only: unset it, or pass --quick")
    if not vllm().exists():
        print(f"no vLLM at {vllm()}: scripts/install_vllm_cpu.sh installs it")
        claim.record([Row("greedy replies with identical token ids", None, exactly(PROMPTS), n=PROMPTS)])
        return
    with folder() as root:
        rows = asyncio.run(measure(root, QUICK_TASKS if claim.quick else TASKS))
    claim.conclude(rows)


async def measure(root: Path, tasks: int) -> list[Row]:
    """Return every figure, with the server up for as long as that takes."""
    prompts = await office_prompts(PROMPTS)
    started = time.perf_counter()
    async with both(pocket(), root / "vllm.log") as (local, served):
        ready = time.perf_counter() - started
        rows = replies(await compare(local, served, prompts))
        mine, theirs = await learn(local, root / "local", tasks), await learn(served, root / "served", tasks)
    return [*rows, *learning(mine, theirs), Row("seconds until both are loaded and the server answers", ready)]


def replies(pairs: Sequence[Pair]) -> list[Row]:
    """Return the figures of the prompts asked one by one."""
    n = len(pairs)
    return [
        Row("prompts rendered to identical token ids", sum(p.same_prompt for p in pairs), exactly(n), n=n),
        Row("greedy replies with identical token ids", sum(p.same_tokens for p in pairs), exactly(n), n=n),
        Row("greedy replies with identical text and end", sum(p.same_text for p in pairs), exactly(n), n=n),
        Row(
            "largest difference of a token's log-probability",
            max(p.gap for p in pairs),
            at_most(1e-3),
            n=sum(len(p.local.token_ids or ()) for p in pairs),
        ),
    ]


def learning(local: Learned, served: Learned) -> list[Row]:
    """Return how much of a learning run is the same: what acting, reflecting and curating said, and what came of it."""
    parts = {
        "prompts with their replies": (set(local.replies.items()), set(served.replies.items())),
        "episodes": (set(local.episodes.items()), set(served.episodes.items())),
        "bullets": (set(local.playbook), set(served.playbook)),
    }
    return [
        Row(f"learning run: {what} that only one of the two has", len(one ^ other), exactly(0), n=len(one | other))
        for what, (one, other) in parts.items()
    ]


if __name__ == "__main__":
    main()
