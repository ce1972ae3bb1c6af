"""trackio: a SQLite file for each project, in the folder that `TRACKIO_DIR` names; `trackio show` draws it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any


class Run:
    """A run `name` of the project `evolve`, with its settings. Nothing is sent anywhere."""

    def __init__(self, workspace: Path, name: str, settings: Mapping[str, Any]) -> None:
        del workspace
        with redirect_stdout(sys.stderr):  # it greets
            self._trackio: Any = import_module("trackio")
            utils: Any = import_module("trackio.utils")
            self._trackio.init(
                project="evolve", name=name, config=dict(settings), embed=False, auto_log_gpu=False, auto_log_cpu=False
            )
        self.where = str(utils.TRACKIO_DIR)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Add the figures of a step."""
        self._trackio.log(dict(figures), step=step)

    def close(self) -> None:
        """End the run."""
        with redirect_stdout(sys.stderr):
            self._trackio.finish()

    @staticmethod
    def packages() -> tuple[str, ...]:
        """Return what has to be installed."""
        return ("trackio",)


MEMBER = Run
