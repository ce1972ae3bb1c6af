"""A Ray cluster of this machine, for claims and tests: its nodes are processes, with a processor each."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator
from contextlib import contextmanager

_STORE_BYTES = 10**8


@contextmanager
def cluster(nodes: int) -> Generator[None]:
    """Have a cluster of so many nodes, and be connected to it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read once, when ray is imported
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": _STORE_BYTES})
    for _ in range(nodes - 1):
        made.add_node(num_cpus=1, object_store_memory=_STORE_BYTES)
    ray.init(address=made.address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()
        made.shutdown()
