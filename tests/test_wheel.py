"""What a user gets from the built wheel: all packages with their data, and one clear sentence on a name clash."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PACKAGES = ("evolve", "memory", "skills", "policies", "playbooks", "contrib")


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the tracked files, so that what lies around in the working tree is not in it."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in tracked(root):
        if (root / name).is_file():
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((root / name).read_bytes())
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    return next(out.glob("evolve_agents-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a folder of its own."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True, text=True)
    return target


def tracked(root: Path) -> list[str]:
    """Return the paths git knows."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True)
    return [name for name in listing.stdout.split("\0") if name]


def run_beside(folder: Path, installed: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in the user's `folder`, with the installed wheel on the path."""
    env = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run([sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True)


def test_the_wheel_holds_every_tracked_file_of_the_packages_and_no_other(root: Path, wheel: Path) -> None:
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert shipped == {name for name in tracked(root) if name.split("/")[0] in PACKAGES and (root / name).is_file()}


def test_the_installed_wheel_imports_from_its_own_folder(installed: Path, tmp_path: Path) -> None:
    ran = run_beside(tmp_path, installed, "import evolve, memory.records; print(evolve.__file__, memory.__file__)")
    assert ran.returncode == 0, ran.stderr
    assert all(Path(file).is_relative_to(installed) for file in ran.stdout.split())


@pytest.mark.parametrize("name", ["memory", "skills", "policies", "playbooks"])
def test_a_users_own_module_of_the_same_name_is_named_in_one_sentence(
    installed: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / f"{name}.py").write_text("notes = []\n")
    ran = run_beside(tmp_path, installed, "import evolve")
    last_line = ran.stderr.strip().splitlines()[-1]
    assert ran.returncode == 1
    assert last_line.startswith(f"ImportError: `import {name}` finds '{tmp_path / name}.py' instead of evolve's own")
    assert "rename yours" in last_line


def test_the_users_module_is_also_noticed_when_it_was_imported_first(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "memory.py").write_text("notes = []\n")
    ran = run_beside(tmp_path, installed, "import memory, evolve")
    assert "ImportError: `import memory` finds" in ran.stderr


def test_a_users_own_contrib_stands_in_the_way_of_nothing_but_what_is_there(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "contrib.py").write_text("notes = []\n")
    ran = run_beside(tmp_path, installed, "import evolve; from policies.rl import slots; slots.make('losses', 'ppo')")
    assert ran.returncode == 0, ran.stderr


def test_a_plain_folder_of_the_same_name_does_no_harm(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "skills").mkdir()
    ran = run_beside(tmp_path, installed, "import evolve, skills.protocols")
    assert ran.returncode == 0, ran.stderr
