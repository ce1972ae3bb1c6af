"""`make demo` shows what it is there to show: halves beside the control, lessons, the curve; and it stays learned.

That the pocket model gets visibly better is held by `tests/test_first_hour.py`, with more tasks and all gates.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest


def demo(root: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Make the demo in `folder`."""
    binaries = Path(sys.executable).parent
    command = ["make", "-s", "-o", ".venv/.installed", "demo", f"DEMO={folder}", f"BIN={binaries}"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


def short(root: Path, folder: Path) -> Path:
    """Write the demo's settings, with fewer tasks and no trials of lessons: all of it is run by claim mend_1.

    Which canary tasks a trial takes is drawn anew each time, so that with trials no two runs are alike.
    """
    subprocess.run([Path(sys.executable).with_name("evolve"), "init", str(folder)], cwd=root, check=True)
    settings = folder / "evolve.toml"
    written = settings.read_text().replace("tasks = 60", "tasks = 10")
    settings.write_text(written.replace('names = ["default"]', 'names = ["static"]'))
    assert "tasks = 10" in settings.read_text()
    assert 'names = ["static"]' in settings.read_text()
    return settings


@pytest.mark.slow
def test_the_demo_shows_halves_control_lessons_and_the_curve(root: Path, tmp_path: Path) -> None:
    settings = short(root, tmp_path / "demo")
    ran = demo(root, tmp_path / "demo")
    assert ran.returncode == 0, ran.stderr
    figures = dict(re.findall(r"^(\w[\w ()]+?)\s+TGC\s+([\d.]+)%", ran.stdout, re.MULTILINE))
    assert {"without memory (sample)", "first half", "second half", "whole stream"} <= set(figures)
    assert len(re.findall(r"^shr-\d+", ran.stdout, re.MULTILINE)) >= 2
    (picture,) = re.findall(r"learning curve: (\S+\.png)", ran.stdout)
    assert Path(picture).read_bytes().startswith(b"\x89PNG")
    settings.write_text(settings.read_text().replace("tasks = 10", "tasks = 4"))
    again = demo(root, tmp_path / "demo")
    assert again.returncode == 0, again.stderr
    assert "known before: " in again.stdout
    assert "known before: 0," not in again.stdout
