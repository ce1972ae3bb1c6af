"""A screen of a long list, and where the others are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query

Number = Annotated[int, Query(ge=1, le=1_000_000)]


@dataclass(frozen=True)
class Paging:
    """Which screen of a list is shown; screens are counted from 1."""

    number: int
    size: int
    total: int

    @property
    def offset(self) -> int:
        return (self.number - 1) * self.size

    @property
    def last(self) -> int:
        return max(1, -(-self.total // self.size))

    @property
    def first_shown(self) -> int:
        return min(self.offset + 1, self.total)

    @property
    def last_shown(self) -> int:
        return min(self.offset + self.size, self.total)
