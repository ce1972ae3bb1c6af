"""Follow one page in an empty folder and print each step with its time as a line of JSON.

    python -m benchmarks.first_hour PAGE FOLDER [first]

`first` stops behind the first block of shell commands or of Python that names no file.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from docs.blocks import FENCE, run_page

ROOT = Path(__file__).resolve().parents[1]


def first_part(text: str) -> str:
    """Return a page up to the end of its first block that is run."""
    for block in FENCE.finditer(text):
        if block[1] in ("bash", "python") and not block[2]:
            return text[: block.end()]
    return text


def main(page: Path, folder: Path, *, first: bool) -> None:
    """Run the page and print its steps."""
    with tempfile.TemporaryDirectory(prefix="evolve-page-") as beside:
        copy = Path(beside) / page.name
        copy.write_text(first_part(page.read_text()) if first else page.read_text())
        begun = time.monotonic()
        for ran in run_page(copy, ROOT, folder):
            now = time.monotonic()
            step = {"command": ran.command.partition("#")[0].strip(), "ok": ran.ok, "seconds": now - begun}
            print(json.dumps(step | {"said": "" if ran.ok else ran.said[-2000:]}), flush=True)
            begun = now


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), first=sys.argv[3:] == ["first"])
