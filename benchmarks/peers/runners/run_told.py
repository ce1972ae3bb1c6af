"""The bare prompt that also says which modules there are: of nine wordings the one that this model does best with."""

from __future__ import annotations

from dataclasses import replace

from assignment import read
from run_bare import answer

MODULES = " There is `math`; numpy and scipy are missing."


def main() -> None:
    """Learn nothing; answer."""
    given = read()
    answer(replace(given, description=given.description + MODULES))


if __name__ == "__main__":
    main()
