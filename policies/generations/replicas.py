"""Which of several servers a request goes to: the one that has computed its prompt's beginning, unless it has too much.

Rendezvous hashing orders the servers for each beginning; the first one whose load is within a bound takes the request
(consistent hashing with bounded loads, arXiv 1608.01350). So turns of one conversation, and tasks that are shown the
same knowledge, meet their keys and values in one server's prefix cache, a server that is taken away moves its own
requests alone, and none has more than a quarter above the mean while another has less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b

BEGINNING = 256
"""Tokens of a prompt by which requests are told apart: what the world and the playbook say at least."""
ABOVE_MEAN = 1.25


def chosen(urls: Sequence[str], loads: Sequence[int], prompt: Sequence[int], version: str | None) -> int:
    """Return the index of the server for one more request, by the requests that each of them has now."""
    most = bound(loads)
    return next(at for at in order(urls, prompt, version) if loads[at] < most)


def bound(loads: Sequence[int]) -> int:
    """Return how many requests a server may have with one more: a quarter above the mean, and no fewer than any has."""
    return max(min(loads) + 1, math.floor(ABOVE_MEAN * (sum(loads) + 1) / len(loads)))


def order(urls: Sequence[str], prompt: Sequence[int], version: str | None) -> list[int]:
    """Return the indices of the servers, the one for prompts that begin like this and that version first."""
    begins = f"{version} {' '.join(map(str, prompt[:BEGINNING]))}".encode()
    weights = [
        blake2b(begins, digest_size=8, key=blake2b(url.encode(), digest_size=32).digest()).digest() for url in urls
    ]
    return sorted(range(len(urls)), key=lambda at: weights[at])
