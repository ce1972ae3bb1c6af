"""Claim inspect_5: the guides work as written, tried as a new user would on a clean clone.

The repository's last commit is cloned into a temporary folder, and every fenced block of README, CONTRIBUTING and the
guides there is run in an empty folder per page: as written, in order, by the runner of the tests (`docs/blocks.py`).
Not repeated is `make install`: the present interpreter's packages are used, with the clone first on PYTHONPATH; of a
`make` command only the target is looked up, and `git clone`, `cd`, `pip install` and `source` are passed over. Servers
stand in `text` blocks, which nobody runs. A picture counts where the clone has it. `--quick`: two guides.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.claim import Row, at_least, begin, exactly, git
from benchmarks.table import ROOT
from docs.blocks import Ran, configurations, pages, run_page
from evolve.inspector.rendering import PAGES

QUICK = ("integrations.md", "telemetry.md")
WIDTHS = (390, 1440)
CHECKED = "import sys, evolve.config.file as c, pathlib; c.load_config(pathlib.Path(sys.argv[1]))"


def cloned(folder: Path) -> Path:
    """Return a clone of what is committed here."""
    git("clone", "--quiet", "--no-hardlinks", str(ROOT), str(folder))
    return folder


def tried(page: Path, clone: Path) -> Iterator[Ran]:
    """Run a page's blocks and check its configurations with the clone's own code."""
    variables = {"PYTHONPATH": str(clone)}
    with tempfile.TemporaryDirectory(prefix="evolve-guide-") as folder:
        yield from run_page(page, clone, Path(folder), variables)
        for text in configurations(page):
            file = Path(folder) / "checked.toml"
            file.write_text(text)
            command = [sys.executable, "-c", CHECKED, str(file)]
            ran = subprocess.run(command, env=os.environ | variables, cwd=folder, capture_output=True, text=True)
            yield Ran("toml", text, ran.returncode == 0, ran.stderr)


def pictured(clone: Path) -> int:
    """Count the inspector's pages whose pictures are committed at both widths."""
    folder = clone / "docs" / "screenshots"
    return sum(all((folder / f"{name}-{width}.png").is_file() for width in WIDTHS) for name in PAGES)


def named(clone: Path) -> int:
    """Count the inspector's pages that its guide names."""
    text = (clone / "docs" / "guides" / "inspect.md").read_text()
    return sum(f"**{title}**" in text for title in PAGES.values())


def rows(found: list[Ran], guides: int, clone: Path) -> list[Row]:
    """Return the figures; what failed is printed."""
    for ran in found:
        if not ran.ok:
            print(f"{ran.language}: {ran.command}\n{ran.said}")
    total, worked = (Counter(ran.language for ran in some) for some in (found, [ran for ran in found if ran.ok]))
    commands = total["bash"]
    return [
        Row("commands that worked as written, %", 100 * worked["bash"] / commands, exactly(100), n=commands),
        Row("blocks of Python that ran", worked["python"], exactly(total["python"]), n=total["python"]),
        Row("configurations that are accepted", worked["toml"], exactly(total["toml"]), n=total["toml"]),
        Row("targets of make that exist", worked["make"], exactly(total["make"]), n=total["make"]),
        Row("pages of documentation that were followed", guides, at_least(2)),
        Row("pages of the inspector with committed pictures at both widths", pictured(clone), exactly(len(PAGES))),
        Row("pages of the inspector that its guide names", named(clone), exactly(len(PAGES))),
    ]


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed."""
    claim = begin("inspect_5_guides", __doc__)
    with tempfile.TemporaryDirectory(prefix="evolve-clone-") as scratch:
        clone = cloned(Path(scratch) / "evolve")
        wanted = [page for page in pages(clone) if not claim.quick or page.name in QUICK]
        found = [ran for page in wanted for ran in tried(page, clone)]
        claim.conclude(rows(found, len(wanted), clone))


if __name__ == "__main__":
    main()
