"""Files that packages write: what they raise where the disk is full becomes the `OSError` that was behind it."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def writing(path: Path) -> Generator[None]:
    """Raise `OSError`, with its number and `path`, where torch or safetensors could not write in this block."""
    try:
        yield
    except Exception as error:
        number = _number(error)
        if number is None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from error


def _number(error: BaseException | None) -> int | None:
    """Return the number of the system's error: of one in the chain, or told in a text."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        if told := re.search(r"\(os error (\d+)\)", str(error)):
            return int(told[1])
        error = error.__context__
    return None
