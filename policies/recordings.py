"""Recorded replies in a JSON Lines file: readable, diffable fixtures for tests. A workspace journals in its store."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

from memory.errors import BadInput


class Recordings:
    """A `ReplyStore` over one file. Every reply is appended as a line; the last line of a key counts."""

    def __init__(self, path: Path) -> None:
        """Read `path` if it exists. Raises `BadInput` for a line that is no recording."""
        self._path = path
        self._replies: dict[str, dict[str, Any]] = {}
        text = path.read_text(encoding="utf-8").rstrip("\n") if path.exists() else ""
        if text:
            for number, line in enumerate(text.split("\n"), start=1):
                key, reply = self._read(number, line)
                self._replies[key] = reply

    async def put_reply(self, key: str, reply: dict[str, Any]) -> None:
        """Append one reply, all or nothing. Raises `OSError` where the disk is full."""
        line = (json.dumps({"key": key, **reply}, ensure_ascii=False) + "\n").encode()
        with self._path.open("ab", buffering=0) as file:
            end = file.tell()
            if file.write(line) < len(line):
                file.truncate(end)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self._replies[key] = reply

    def get_reply(self, key: str) -> dict[str, Any] | None:
        """Return the reply stored under `key`, or None."""
        return self._replies.get(key)

    def _read(self, number: int, line: str) -> tuple[str, dict[str, Any]]:
        try:
            entry = json.loads(line)
            return entry.pop("key"), entry
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise BadInput(
                f"{self._path} line {number} is no recorded reply: {line[:80]!r}; remove the line or record again"
            ) from error
