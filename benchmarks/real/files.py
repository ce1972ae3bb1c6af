"""Paths to the files of others: tasks that tests and claims read, and that are not part of this repository."""

from __future__ import annotations

import os
from pathlib import Path

from memory.errors import BadInput

DATA = "EVOLVE_TEST_DATA"


def data(name: str) -> str:
    """Return the path of a file of others. Raises `BadInput` where it is not."""
    place = os.environ.get(DATA)
    if not place or not (Path(place) / name).is_file():
        raise BadInput(f"{name} is not in the folder that {DATA} names ({place!r}); set it to where the files are")
    return str(Path(place) / name)
