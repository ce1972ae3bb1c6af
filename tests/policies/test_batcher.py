"""Batches in a worker thread: a request that nobody waits for any more holds nobody up."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

from policies.local.batcher import Batcher
from policies.local.request import Completion, Request

LONG = 5_000


async def test_a_cancelled_request_leaves_the_running_batch_and_the_queue() -> None:
    ran: list[Completion] = []
    begun = threading.Event()

    def run(requests: Sequence[Request]) -> list[Completion]:
        """A model that says the same token every millisecond."""
        rows = [Completion(request) for request in requests]
        ran.extend(rows)
        begun.set()
        while any(not row.finish_reason for row in rows):
            time.sleep(0.001)
            for row in rows:
                if not row.finish_reason:
                    row.add(7, -0.5)
        return rows

    batcher = Batcher(run, limit=2, threads=None)
    asked = [Request(prompt=(1,), max_tokens=LONG), Request(prompt=(2,), max_tokens=4)]
    tasks = [asyncio.create_task(batcher.submit(request)) for request in [*asked, Request((3,), LONG)]]
    await asyncio.to_thread(begun.wait)
    tasks[0].cancel()
    tasks[2].cancel()
    done = await tasks[1]
    assert (done.tokens, done.finish_reason) == ([7] * 4, "length")
    late = await batcher.submit(Request(prompt=(4,), max_tokens=2, stop=lambda tokens: len(tokens) == 1))
    assert late.tokens == [7], "a request's own end is still one"
    await batcher.close()
    assert [row.request.prompt for row in ran] == [(1,), (2,), (4,)], "what waited was never computed"
    assert len(ran[0].tokens) < LONG
