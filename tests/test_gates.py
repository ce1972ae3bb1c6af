"""Every gate is broken on purpose, with the project's own settings, and must notice.

G1  ruff: one offence of each family that is selected
G2  pyright: strict in each package
G3  import-linter: an import that runs up, one between siblings, one of contrib, one through each fence, a room without
    a floor
G4  benchmarks/shape.py: a circle in a room, a string that names a module
G5  pytest: a warning is an error
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PACKAGES = ("evolve", "memory", "skills", "policies", "playbooks", "contrib")
OFFENCES = {
    "E": "x = lambda: 1\n",
    "F": "import os\n",
    "W": "x = '\\d'\n",
    "I": "import sys\nimport os\n\nprint(sys, os)\n",
    "B": "def f(x=[]):\n    return x\n",
    "UP": "from typing import List\n\nx: List[int] = []\n",
    "N": "def Bad():\n    pass\n",
    "RUF": "x = [1] + [*range(3)] + list(range(2))\ny = 1  # noqa: E501\n",
    "C4": "x = list([i for i in range(3)])\n",
    "SIM": "def f(x):\n    if x:\n        return True\n    else:\n        return False\n",
    "RET": "def f(x):\n    y = x + 1\n    return y\n",
    "PTH": "import os\n\nos.path.join('a', 'b')\n",
    "PT": "import pytest\n\n\n@pytest.fixture()\ndef f():\n    return 1\n\n\ndef test_a():\n    assert 1 and 2\n",
    "TID": "from .records import Task\n\nprint(Task)\n",
    "C90": "def f(x):\n" + "".join(f"    if x == {n}:\n        print({n})\n" for n in range(13)),
}
UPWARD = {
    "memory/up.py": "from policies.protocols import Policy\n",
    "policies/up.py": "from playbooks.protocols import Curator\n",
    "policies/lab.py": "import labs.pocket.train\n",
    "policies/research.py": "import contrib.advantages.opo\n",
    "evolve/training/research.py": "def f() -> None:\n    from contrib.losses.gmpo import Gmpo\n    print(Gmpo)\n",
    "contrib/up.py": "import evolve.protocols\n",
    "playbooks/sideways.py": "from skills.protocols import Sandbox\n",
    "skills/sideways.py": "import playbooks.protocols\n",
    "skills/up.py": "from evolve.protocols import Episode\n",
    "evolve/gates/up.py": "from evolve.loop.state import Deps\n",
    "evolve/config/up.py": "def f() -> None:\n    import evolve.environments.task_files\n",
}
THROUGH_THE_FENCE = {
    "evolve/gates/other.py": "def f() -> None:\n    from langgraph.types import Send\n    print(Send)\n",
    "memory/other.py": "import chromadb.config\n",
    "policies/other.py": "def f() -> None:\n    import torch.nn\n",
    "evolve/gates/heavy.py": "import transformers\n",
    "evolve/gates/paged.py": "import fastapi.responses\n",
    "evolve/gates/served.py": "def f() -> None:\n    import mcp.server\n",
    "playbooks/chat.py": "import langchain_core.messages\n",
    "evolve/gates/counted.py": "import sqlite3\n",
    "skills/kept.py": "from memory.sqlite.database import open_database\n\nprint(open_database)\n",
    "evolve/gates/traced.py": "from opentelemetry.sdk.trace import TracerProvider\n\nprint(TracerProvider)\n",
}


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a tool of this virtual environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(command, cwd=cwd, env={**os.environ, "PATH": path}, capture_output=True, text=True)


@pytest.mark.parametrize("family", sorted(OFFENCES))
def test_ruff_notices_each_family(root: Path, tmp_path: Path, family: str) -> None:
    (tmp_path / "offence.py").write_text(OFFENCES[family])
    ran = run(
        "ruff",
        "check",
        "--no-cache",
        "--output-format=json",
        "--config",
        str(root / "pyproject.toml"),
        ".",
        cwd=tmp_path,
    )
    codes = {str(found["code"]).rstrip("0123456789") for found in json.loads(ran.stdout)}
    assert ("C" if family in {"C4", "C90"} else family) in codes


def test_every_selected_family_has_an_offence(root: Path) -> None:
    selected = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]["select"]
    assert sorted(selected) == sorted(OFFENCES)


def test_pyright_is_strict_in_each_package(root: Path, tmp_path: Path) -> None:
    for package in PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "offence.py").write_text('def f(x):\n    return x\n\n\ny: int = "text"\n')
    shutil.copy(root / "pyproject.toml", tmp_path)
    report = json.loads(run("pyright", "--outputjson", cwd=tmp_path).stdout)
    rules = {(Path(d["file"]).parent.name, d["rule"]) for d in report["generalDiagnostics"] if d["severity"] == "error"}
    assert {(p, r) for p in PACKAGES for r in ("reportMissingParameterType", "reportAssignmentType")} <= rules


@pytest.fixture
def tree(root: Path, tmp_path: Path) -> Path:
    """Return a copy of the packages' code, with the settings."""
    for package in PACKAGES:
        shutil.copytree(
            root / package,
            tmp_path / package,
            ignore=lambda _, names: [n for n in names if "." in n and not n.endswith(".py")],
        )
    shutil.copy(root / "pyproject.toml", tmp_path)
    return tmp_path


def broken_imports(tree: Path) -> str:
    """Return what import-linter says of a broken contract; empty when all are kept."""
    ran = run("lint-imports", "--no-cache", "--no-logo", cwd=tree)
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


def test_imports_run_down_and_stay_behind_the_fences(tree: Path) -> None:
    assert broken_imports(tree) == ""


def test_each_import_that_runs_up_or_through_a_fence_is_noticed(tree: Path) -> None:
    for name, source in {**UPWARD, **THROUGH_THE_FENCE}.items():
        (tree / name).write_text(f'"""Offence."""\n{source}')
    said = broken_imports(tree)
    modules = {name: name.removesuffix(".py").replace("/", ".") for name in {**UPWARD, **THROUGH_THE_FENCE}}
    assert [name for name, module in modules.items() if f"{module} ->" not in said] == []


def test_a_room_of_evolve_without_a_floor_is_noticed(tree: Path) -> None:
    (tree / "evolve" / "attic").mkdir()
    (tree / "evolve" / "attic" / "__init__.py").write_text('"""Offence."""\n')
    assert "attic" in broken_imports(tree)


def test_a_circle_in_a_room_and_a_module_in_a_string_are_noticed_and_there_are_none(root: Path, tree: Path) -> None:
    (tree / "evolve" / "gates" / "one.py").write_text('"""Offence."""\nfrom evolve.gates import two\n')
    (tree / "evolve" / "gates" / "two.py").write_text('"""Offence."""\nfrom evolve.gates import one\n')
    (tree / "docs").mkdir()
    shutil.copy(root / "docs" / "config.md", tree / "docs")
    (tree / "evolve" / "gates" / "named.py").write_text(
        '"""Offence."""\nNAME, OTHER = "x", f"evolve.{1}"\nPATH = f"memory.indexes.{NAME}"\n'
    )
    found = json.loads(run(sys.executable, str(root / "benchmarks" / "shape.py"), str(tree), cwd=tree).stdout)
    assert found["circles"] == ["evolve.gates.one evolve.gates.two"]
    assert found["upward arrows"] == []
    assert found["strings that name our own modules"] == ["evolve.gates.named: memory.indexes.{}"]


def test_a_warning_fails_a_test(root: Path, tmp_path: Path) -> None:
    (tmp_path / "test_warns.py").write_text(
        "import warnings\n\n\ndef test_warns():\n    warnings.warn('old', UserWarning)\n"
    )
    shutil.copy(root / "pyproject.toml", tmp_path)
    (tmp_path / "tests").mkdir()
    apart = ("-p", "no:cacheprovider", "-p", "no:slipcover")
    ran = run(sys.executable, "-m", "pytest", "-q", *apart, "test_warns.py", cwd=tmp_path)
    assert "UserWarning: old" in ran.stdout
    assert ran.returncode == 1
