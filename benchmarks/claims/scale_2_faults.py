"""Claim scale_2: whatever breaks under a run on a server and a cluster, nothing is lost and nothing is paid for twice.

Online runs of twelve office tasks under the default gates (the scripted worker, rules) lie on PostgreSQL; their
episodes, those of trials too, are done by the workers of a Ray cluster of two nodes. In turns a worker, a node, the
run's own process, a session of the server and the server itself are killed, or a worker is stopped and never goes on
(one that is silent for 16 s counts as hanging here; for 300 s and more elsewhere), or the network to the server is
silent for five seconds, or breaks all connections and takes none for as long, at moments that are drawn. A run that
ended is resumed by the command, until it is done. A node that was killed is replaced; the head node is not killed,
since Ray alone cannot do without it.
Controls: a run without a fault, to which all others must come; the calls that a start anew would have made again.

    python -m benchmarks.claims.scale_2_faults [--quick]        --quick: eight faults, one of each kind

Server, nodes and network are processes of this machine; what the server tells as committed is written before it does.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.claim import Row, at_least, begin, exactly
from benchmarks.server_faults import KINDS, Toll, strike_runs

FAULTS, QUICK, TASKS, SEED = 200, len(KINDS), 12, 0
NONE = exactly(0)


def rows(toll: Toll, wanted: int) -> list[Row]:
    """Return what the faults came to."""
    n, runs = toll.count, toll.runs
    found = [Row("faults", n, at_least(wanted), n=runs, seed=SEED)]
    found += [Row(f"of them: {kind}", toll.faults[kind], at_least(1), n=n) for kind in KINDS]
    return [
        *found,
        Row("committed events lost or changed", toll.lost, NONE, n=toll.events),
        Row("journalled model calls made again", toll.repeated, NONE, n=toll.calls),
        Row("journalled model calls that starts anew would have made again (control)", toll.anew, at_least(1), n=runs),
        Row("runs that could not be resumed", len(toll.stuck), NONE, n=runs),
        Row("times that a run was resumed", toll.resumed, n=runs),
        Row("runs that ended otherwise than without a fault", toll.different, NONE, n=runs),
        Row("findings of the doctor", len(toll.findings), NONE, n=runs),
        Row("locks left behind", toll.locks, NONE, n=runs),
    ]


def main() -> None:
    """Break, count, record."""
    run = begin("scale_2_faults", __doc__)
    wanted = QUICK if run.quick else FAULTS
    with tempfile.TemporaryDirectory(prefix="evolve-scale-2-") as folder:
        toll = strike_runs(Path(folder) / "runs", wanted, TASKS, SEED)
    for said in (*toll.stuck, *toll.findings):
        print(said)
    run.conclude(rows(toll, wanted))


if __name__ == "__main__":
    main()
