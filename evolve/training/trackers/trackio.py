"""trackio: a SQLite file for each project, in the folder that `TRACKIO_DIR` names; `trackio show` draws it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["send"]


def send(
    workspace: Path, name: str, told: Sequence[tuple[int, Mapping[str, float]]], settings: Mapping[str, Any]
) -> str:
    """Write a run `name` of the project `evolve`, and return where it is. Nothing is sent anywhere.

    `told`: (step, figures); `settings`: shown beside them. Raises `ModuleNotFoundError` where trackio is missing.
    """
    del workspace
    with redirect_stdout(sys.stderr):  # it greets
        trackio: Any = import_module("trackio")
        utils: Any = import_module("trackio.utils")
        trackio.init(
            project="evolve", name=name, config=dict(settings), embed=False, auto_log_gpu=False, auto_log_cpu=False
        )
        for step, figures in told:
            trackio.log(dict(figures), step=step)
        trackio.finish()
    return str(utils.TRACKIO_DIR)
