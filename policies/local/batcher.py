"""Gathers concurrent requests into batches that run one after the other in a worker thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from policies.errors import PolicyUnavailable
from policies.local.request import Completion, Request

QUIET_SECONDS = 0.002

Waiting = tuple[Request, "asyncio.Future[Completion]"]


class Batcher:
    """`submit` waits until no further request arrives for 2 ms (or `limit` are there), then all run together.

    Requests that arrive while a batch runs form the next one. A request that nobody waits for any more leaves the
    batch with its next token. One event loop at a time.
    """

    def __init__(self, run: Callable[[Sequence[Request]], list[Completion]], limit: int, threads: int | None) -> None:
        self._run, self._limit = run, limit
        self._waiting: list[Waiting] = []
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._worker = ThreadPoolExecutor(1, "local-policy", set_threads, (threads,))

    async def submit(self, request: Request) -> Completion:
        """Return the completion of one request. Raises `PolicyUnavailable` after `close`."""
        if self._closed:
            raise PolicyUnavailable("this LocalPolicy was closed; make a new one")
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((_until(future, request), future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain())
        return await future

    async def between(self, work: Callable[[], None]) -> None:
        """Do something while no batch runs. Raises as `submit`."""
        if self._closed:
            raise PolicyUnavailable("this LocalPolicy was closed; make a new one")
        await asyncio.get_running_loop().run_in_executor(self._worker, work)

    async def close(self) -> None:
        """Answer what still waits and end the thread; later requests fail."""
        self._closed = True
        if self._task is not None and not self._task.done():
            await asyncio.gather(self._task, return_exceptions=True)
        self._worker.shutdown()

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            seen = 0
            while seen < len(self._waiting) < self._limit:
                seen = len(self._waiting)
                await asyncio.sleep(QUIET_SECONDS)
            batch, self._waiting = self._waiting[: self._limit], self._waiting[self._limit :]
            batch = [(request, future) for request, future in batch if not future.done()]
            if batch:
                await self._serve(loop, batch)

    async def _serve(self, loop: asyncio.AbstractEventLoop, batch: list[Waiting]) -> None:
        try:
            completions = await loop.run_in_executor(self._worker, self._run, [request for request, _ in batch])
        except BaseException as error:  # every caller must hear of it, whatever it is
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for (_, future), completion in zip(batch, completions, strict=True):
            if not future.done():
                future.set_result(completion)


def _until(future: asyncio.Future[Completion], request: Request) -> Request:
    """Return the request with an end where its caller was cancelled."""
    return replace(request, stop=lambda tokens: future.cancelled() or request.stop(tokens))


def set_threads(threads: int | None) -> None:
    """Begin a worker thread: it computes with so many CPU threads."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
