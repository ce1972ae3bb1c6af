"""Put arms through the ring at the same time, for what they solve: with one server a few hours in place of a day.

    python -m benchmarks.peers.together gepa langchain exemplars skills

They begin in this order, three at a time. Each leaves its cell, as it does when `real_4_peers` runs them one after the
other. The server answers as many requests at once as they ask, so their seconds are no times to compare, and the cells
say so (`adapt.shared`). What they solve is the same but for what depends on timing: kayba learns in threads while its
agents go on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from benchmarks.claim import begin
from benchmarks.claims.real_4_peers import (
    CONTEXT,
    MODEL,
    PEERS,
    SEEDS,
    TESTED,
    TOOLS,
    TRAIN,
    places,
    put_through,
    ringed,
    section,
)
from benchmarks.peers import install
from benchmarks.peers.ours import ARMS
from benchmarks.peers.ring import BARE, TOLD, PeerFailed
from benchmarks.real.lives import BF16, served_bf16
from memory.errors import BadInput

AT_ONCE = 3
"""More arms would each be slower, and a sitting would end with none of them done."""


def main(names: Sequence[str]) -> int:
    """Measure arms, all peers by default; return the exit status: 1, where one could not run."""
    status, names = 0, names or PEERS
    commit = begin("real_4_peers", __doc__, ()).commit
    for name in names:
        if name not in (BARE, TOLD, *ARMS):
            install.find(name)
    with served_bf16(MODEL, context=CONTEXT, more=TOOLS) as url:
        for seed in SEEDS:
            with (
                ringed(places(commit), url, MODEL + BF16, (TRAIN, TESTED), seed) as ring,
                ThreadPoolExecutor(AT_ONCE) as pool,
            ):
                for name, found in [(name, pool.submit(put_through, ring, name, section(seed))) for name in names]:
                    try:
                        found.result()
                        print(f"{name}: done", flush=True)
                    except (PeerFailed, BadInput) as reason:
                        status = 1
                        print(f"{name}: {reason}", file=sys.stderr, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
