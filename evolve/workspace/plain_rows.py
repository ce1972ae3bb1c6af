"""Lists of plain rows, as the commands print them with `--json`, that turn into a dataframe where pandas is there."""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeVar

from evolve.errors import ConfigError
from memory.records import Frozen

Row = TypeVar("Row", bound=Frozen)


class Rows(tuple[Row, ...]):
    """A tuple of records of one kind."""

    __slots__ = ()

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary of plain JSON values for each of them."""
        return [each.model_dump(mode="json") for each in self]

    def dataframe(self) -> Any:
        """Return them as a pandas `DataFrame`, a line each. Raises `ConfigError` where pandas is not installed."""
        try:
            pandas = import_module("pandas")
        except ModuleNotFoundError as missing:
            raise ConfigError("a dataframe needs pandas: pip install pandas; `rows()` needs nothing") from missing
        return pandas.DataFrame(self.rows())
