"""Lists the test files that `make test-fast` leaves out: those that took more than two seconds of one core.

    python -m benchmarks.slow_files build/tests.xml

The argument is a JUnit file of pytest. A file that is not in the list counts as fast, so that new tests are run.
Some tests of those that are in it are named in `tests/fast_tests.txt`, by hand: they are run as well.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

from benchmarks.table import ROOT

LISTED = Path(ROOT) / "tests" / "slow_files.txt"
SECONDS = 2.0


def seconds_by_file(report: Path) -> dict[str, float]:
    """Return how long the tests of each file took together, by path from the root."""
    found: defaultdict[str, float] = defaultdict(float)
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        module = case.get("classname", "").replace(".", "/")
        found[f"{module}.py"] += float(case.get("time", 0))
    return found


def main() -> None:
    """Write the list and say how long the other files take."""
    taken = seconds_by_file(Path(sys.argv[1]))
    slow = sorted(file for file, seconds in taken.items() if seconds > SECONDS)
    LISTED.write_text("".join(f"{file}\n" for file in slow), encoding="utf-8")
    rest = sum(seconds for seconds in taken.values() if seconds <= SECONDS)
    print(f"{len(slow)} of {len(taken)} files are slow; the others take {rest:.0f} s on one core")


if __name__ == "__main__":
    main()
