"""The documentation is true: its code runs, its links and paths exist, its generated parts are current.

D1  every `bash` block runs, in order, in one fresh folder per page (`docs/blocks.py` says how, and `tests/forked.py`
    how that takes half the time); the README's in `tests/test_first_hour.py`
D2  every `python` block that names no file runs by itself, after the page's shell blocks, in that folder
D3  every `toml` block is a configuration that `evolve` accepts
D4  every relative link leads to a file, and every folder that docs/architecture.md names exists
D5  every reference, and what stands between marks in other pages, is what `make docs` writes
D6  examples, README and guides import nothing of ours but `evolve`
D7  prose wraps at 120 characters
D8  README is short, and so is its table: a figure that is not measured yet is one that its claim's script will store
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from benchmarks.claims import house_4_api
from benchmarks.table import stored
from docs import headlines
from docs.blocks import FENCE, blocks, configurations, pages, run_page
from evolve.config.file import load_config
from evolve.loop.role_policies import require_prices
from tests.forked import forked

ROOT = Path(__file__).resolve().parents[1]
PAGES = pages(ROOT)
PROSE = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
WRITTEN = [page for page in PROSE if "`make docs`" not in page.read_text()[:500]]
"""Pages that people write, not a program."""
KNOWN_LANGUAGES = {"bash", "python", "toml", "text", "json", "markdown"}


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "README.md"], ids=lambda p: str(p.relative_to(ROOT)))
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    for ran in run_page(page, ROOT, tmp_path, start=forked):
        assert ran.ok, f"{page.name}: {ran.command}\n{ran.said}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_configuration_of_a_page_is_accepted(page: Path, tmp_path: Path) -> None:
    for text in configurations(page):
        (tmp_path / "evolve.toml").write_text(text)
        require_prices(load_config(tmp_path / "evolve.toml"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_names_a_language_that_is_looked_after(page: Path) -> None:
    assert {language for language, *_ in FENCE.findall(page.read_text())} <= KNOWN_LANGUAGES


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_wraps(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert [line for line in prose.splitlines() if len(line) > 120 and not line.startswith(("|", "#"))] == []


def test_the_page_about_worlds_has_a_text_world_and_a_database_that_run() -> None:
    page = ROOT / "docs" / "guides" / "own-world.md"
    files = {name: body for language, name, body in FENCE.findall(page.read_text()) if language == "python"}
    for example in ("cellar.py", "bookkeeping.py"):
        assert files[example] == (ROOT / "examples" / "worlds" / example).read_text()
    assert sum("env check" in line for line in "\n".join(blocks(page, "bash")).splitlines()) == 2


def test_every_folder_of_the_architecture_exists() -> None:
    above = (ROOT / "docs" / "architecture.md").read_text().partition("Inside `evolve/`")[0]
    folders = re.findall(r"^\| `(\w+)/` \|", above, re.MULTILINE)
    assert len(folders) >= 8
    assert [name for name in folders if not (ROOT / name).is_dir()] == []


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 116
    assert [line for line in lines if len(line) > 120] == []


def test_real_models_come_first_in_the_readme_once_they_are_measured() -> None:
    results = stored()
    others = {name: rows for name, rows in results.items() if not name.startswith("real_")}
    assert "No real model is measured yet" in headlines.table(others)
    real = [each for each in headlines.HEADLINES if each.claim.startswith("real_")]
    for each in real:
        figures = {each.figure: [1.0, 39.0], each.beside: None}
        rows = [
            {"claim": name, "measured": 20.0, "ci": ci, "n": 30, "commit": "a" * 40} for name, ci in figures.items()
        ]
        told = headlines.table({**others, each.claim: rows}).splitlines()
        assert "not measured yet: `real_" in told[0]
        assert f"+20 [1, 39] | {each.control.format(20)}" in told[6]
        assert len(told) == 6 + headlines.MOST


def test_the_readme_says_in_how_many_of_its_rows_a_real_model_acts() -> None:
    readme = (ROOT / "README.md").read_text()
    claims = re.findall(r"^\| .* \| `(\w+)` [0-9a-f]{7} \|$", readme, re.MULTILINE)
    real = [claim.startswith(("real_", "train_1")) for claim in claims]
    assert real == sorted(real, reverse=True)
    assert f"In the first {sum(real)} rows a model of half a billion parameters acts; below them *pocket*" in readme
    assert "rl_7" not in readme


def test_a_headline_that_is_not_measured_yet_is_a_figure_of_its_claim() -> None:
    shared = [path.read_text() for path in (ROOT / "benchmarks" / "real").glob("*.py")]
    for each in headlines.HEADLINES:
        if each.claim not in stored():
            said = "\n".join([(headlines.SCRIPTS / f"{each.claim}.py").read_text(), *shared])
            assert f'"{each.figure}"' in said, each
            assert f'"{each.beside}"' in said, each


def test_the_rooms_of_evolve_stand_in_the_architecture_from_top_to_bottom() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (inside,) = (each for each in contracts if each.get("containers") == ["evolve"])
    floors = [name.strip() for layer in inside["layers"] for name in layer.split("|")]
    rooms = [name for name in floors if (ROOT / "evolve" / name).is_dir()]
    table = re.findall(r"^\| `(\w+)/` \|", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)
    assert table[-len(rooms) :] == rooms
    assert sorted(rooms) == sorted(path.parent.name for path in (ROOT / "evolve").glob("*/__init__.py"))


def test_examples_and_guides_import_nothing_of_ours_but_evolve() -> None:
    programs = [*house_4_api.examples(), *house_4_api.guides()]
    assert len(programs) > 30
    assert [(name, found) for name, code in programs if (found := house_4_api.inner(code))] == []


def test_the_generated_parts_are_current() -> None:
    from docs.generate import generated

    stale = [str(page.relative_to(ROOT)) for page, text in generated().items() if page.read_text() != text]
    assert stale == [], "run `make docs`"
