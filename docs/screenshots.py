"""Writes `docs/screenshots/`: each page of the inspector at two widths, the overview also dark.

`python -m docs.screenshots` makes two workspaces by public commands. `demo` is that of `make demo`, the pocket model in
its first 60 tasks, a short training from its journal with what the gate said of it, and an evaluation. In `lessons` the
office's scripted worker leaves mistake notes, skills, named runs and changes that wait for review. `--workspace FOLDER`
keeps them there, and takes them if they are there.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Page

from benchmarks.browser import browsing, inspector
from benchmarks.walk import SCRIPTED, command
from evolve.inspector.rendering import PAGES

FOLDER = Path(__file__).parent / "screenshots"
WIDTHS = {390: 844, 1440: 900}
"""Width -> least height."""
MOST = 1800
"""Height at which a long page is cut."""
COLOURS = 64
LESSONS = ("runs", "episode", "notebook", "skills", "review")
"""Pages shown from the second workspace."""
ASKED = {"retrieval": "/retrieval?q=send+a+mail+to+Ann"}
MORE = """\
[notebook]
writer = "rules"
[skills]
enabled = true
"""
"""Beside the scripted worker's settings: notes and skills are written too."""


def picture(page: str, width: int, *, dark: bool = False) -> Path:
    """Return the file of a page's picture."""
    return FOLDER / f"{page}-{width}{'-dark' * dark}.png"


def demo(folder: Path) -> Path:
    """Make the workspace of `make demo`, and train a generation from its journal."""
    if not (folder / "evolve.toml").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "evolve.cli.main", "init", str(folder)], check=True, capture_output=True)
        command(folder, "run")
        command(folder, "train", "sft", "--set", "train.rank=4", "--set", "train.passes=1")
        line = [sys.executable, "-m", "evolve.cli.main", "--config", str(folder / "evolve.toml"), "policy", "gate"]
        subprocess.run([*line, "policy-v1"], check=False, capture_output=True)  # its refusal is an exit code
        command(folder, "eval", "--limit", "24", "--set", "controls.no_memory=1.0")
    return folder


def lessons(folder: Path) -> Path:
    """Make a workspace with notes, skills and waiting changes."""
    if not (folder / "evolve.toml").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "evolve.toml").write_text(SCRIPTED.replace('"direct"', '"direct+notebook"') + MORE)
        command(folder, "run", "--limit", "16", "--set", "run.name=first tasks", "--set", 'run.tags=["office"]')
        command(folder, "eval", "--limit", "20", "--set", "run.name=after 16 tasks", "--set", "controls.no_memory=1.0")
        command(folder, "run", "--set", "run.skip=16", "--limit", "8", "--review")
    return folder


def shoot(workspace: Path, pages: list[str], width: int, *, dark: bool = False) -> None:
    """Write the pictures of these pages of a workspace."""
    with (
        inspector(workspace) as address,
        browsing(address, width=width, height=WIDTHS[width], dark=dark) as (page, seen),
    ):
        home = f"http://{urlsplit(address).netloc}"
        for name in pages:
            page.goto(home + (_episode(page, home) if name == "episode" else _path(name)))
            page.wait_for_selector("h1")
            page.wait_for_timeout(300)  # charts are drawn after the page
            picture(name, width, dark=dark).write_bytes(small(taken(page, width)))
        if seen.complaints:
            raise RuntimeError(f"the browser complained: {seen.complaints}")


def _path(name: str) -> str:
    return ASKED.get(name, "/" if name == "overview" else f"/{name}")


def _episode(page: Page, home: str) -> str:
    """Return the path of an episode of the latest learning run."""
    path = "/runs?kind=learn"
    for kind in ("runs", "episodes"):
        page.goto(home + path)
        path = page.locator(f'main a[href^="/{kind}/"]').first.get_attribute("href") or ""
    return path


def taken(page: Page, width: int) -> bytes:
    """Return the page from its top, whole or cut at `MOST`, in a window of its height."""
    whole = int(page.evaluate("document.documentElement.scrollHeight"))
    page.set_viewport_size({"width": width, "height": min(max(whole, WIDTHS[width]), MOST)})
    page.wait_for_timeout(300)
    png = page.screenshot()
    page.set_viewport_size({"width": width, "height": WIDTHS[width]})
    return png


def small(png: bytes) -> bytes:
    """Return the picture with a palette, if Pillow is there; else as it is."""
    try:
        from PIL import Image
    except ImportError:
        return png
    out = io.BytesIO()
    flat = Image.open(io.BytesIO(png)).convert("RGB")
    flat.quantize(COLOURS, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def main() -> None:
    """Make the workspaces and write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workspace", type=Path, help="keep the two workspaces there")
    given: Path | None = parser.parse_args().workspace
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        root = given or Path(scratch)
        first, second = demo(root / "demo"), lessons(root / "lessons")
        for width in WIDTHS:
            shoot(first, [name for name in PAGES if name not in LESSONS], width)
            shoot(second, list(LESSONS), width)
            shoot(first, ["overview"], width, dark=True)
    found = sorted(FOLDER.glob("*.png"))
    print(f"{len(found)} pictures, {sum(path.stat().st_size for path in found) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
