"""The three date formats of the office."""

from __future__ import annotations

import re

_SHAPES = {
    "iso": re.compile(r"(?P<y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)"),
    "dmy": re.compile(r"(?P<d>\d\d)\.(?P<m>\d\d)\.(?P<y>\d{4})"),
    "mdy": re.compile(r"(?P<m>\d\d)/(?P<d>\d\d)/(?P<y>\d{4})"),
}


def parse(text: str) -> tuple[str, str] | None:
    """Return (format, ISO date) of `text`, or None when it is no date."""
    for name, shape in _SHAPES.items():
        found = shape.fullmatch(text)
        if found:
            return name, f"{found['y']}-{found['m']}-{found['d']}"
    return None


def dmy(iso: str) -> str:
    """Return an ISO date as `05.03.2026`."""
    year, month, day = iso.split("-")
    return f"{day}.{month}.{year}"


def mdy(iso: str) -> str:
    """Return an ISO date as `03/05/2026`."""
    year, month, day = iso.split("-")
    return f"{month}/{day}/{year}"
