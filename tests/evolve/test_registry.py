"""Names become objects: files of a folder, entry points of other packages, and what is said where neither has one."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from evolve.config.model import Config, EnvironmentSection, MemorySection
from evolve.errors import ConfigError, UserCodeError
from evolve.loop.assembly import make_embedder, make_environment, register_kinds
from evolve.registry import choose, members
from evolve.workspace.config_check import check_names
from memory.index_place import find_place
from memory.journal import Journal
from memory.kinds import known_kinds

OTHERS = """
from tests.evolve.toy_doors import Doors

class Corridor(Doors):
    name = "corridor"
    def __init__(self, tasks=3):
        super().__init__(tasks)
"""
KIND = """
from memory.records import Payload

class Rumour(Payload):
    kind = "rumour"
    said: str
    def text(self):
        return self.said
"""
EMBEDDER = """
from memory.embedders.hashing import HashingEmbedder

class Spelled(HashingEmbedder):
    def __init__(self, words):
        super().__init__()
        self.words = words
"""
INDEX = """
from memory.indexes.qdrant import QdrantIndex

class Shelf(QdrantIndex):
    pass
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in which another package seems to be installed."""
    told = tmp_path / "others_of_corridor-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: others-of-corridor\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text(
        "[evolve.environments]\ncorridor = others_corridor:Corridor\n[evolve.kinds]\nrumour = others_rumour:Rumour\n"
        "[evolve.embedders]\nspelled = others_embedder:Spelled\n[evolve.indexes]\nshelf = others_index:Shelf\n"
    )
    (tmp_path / "others_corridor.py").write_text(OTHERS)
    (tmp_path / "others_rumour.py").write_text(KIND)
    (tmp_path / "others_embedder.py").write_text(EMBEDDER)
    (tmp_path / "others_index.py").write_text(INDEX)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("others_corridor", "others_rumour", "others_embedder", "others_index"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def configured(name: str, **options: object) -> Config:
    return Config(environment=EnvironmentSection(name=name, **options))  # type: ignore[arg-type]


def test_another_package_gives_its_environment_a_name(package: Path) -> None:
    made = make_environment(configured("corridor", tasks=2))
    assert made.name == "corridor"
    assert len(made.tasks("train")) == 2


def test_its_kind_of_knowledge_is_known_with_ours(package: Path) -> None:
    register_kinds()
    assert {"bullet", "rumour"} <= set(known_kinds())


def test_its_embedder_is_named_with_a_model_as_ours_are(package: Path) -> None:
    config = Config(memory=MemorySection(embedder="spelled:en"))
    check_names(config)
    assert vars(make_embedder(config))["words"] == "en"
    with pytest.raises(ConfigError, match="'spelled' needs the model that it loads; write 'spelled:<path or hub"):
        make_embedder(Config(memory=MemorySection(embedder="spelled")))


def test_its_index_takes_the_address_of_a_server(package: Path) -> None:
    named = MemorySection(index="shelf:http://localhost:6333/mine").index
    with closing(Journal(package / "evolve.db")) as journal:
        place = find_place(named, journal, model="hashing", dim=8, owner=True)
    assert place is not None
    assert place.kind == "shelf"


def test_names_of_other_packages_are_among_those_offered(package: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"no environment 'corridr' \(did you mean 'corridor'\?\); there are .*office"
    ):
        make_environment(configured("corridr"))


def test_a_bug_in_another_package_is_said_to_be_theirs(package: Path) -> None:
    (package / "others_corridor.py").write_text("raise LookupError('no map')\n")
    with pytest.raises(UserCodeError, match=r"no map \(.*others_corridor\.py:1 in"):
        make_environment(configured("corridor"))


def test_without_the_package_the_name_stands_for_nothing() -> None:
    with pytest.raises(ConfigError, match="no environment 'corridor'"):
        make_environment(configured("corridor"))


def test_a_missing_package_is_named_with_the_extra_that_brings_it() -> None:
    def build() -> object:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    with pytest.raises(
        ConfigError, match=r"policy 'own' needs the package 'torch': pip install 'evolve-agents\[pocket\]'"
    ):
        choose("policy", "own", {"own": build}, lambda made: made)


def test_an_embedder_without_its_model_says_how_it_is_named() -> None:
    with pytest.raises(ConfigError, match="'sentence' needs the model that it loads; write 'sentence:<path or hub"):
        make_embedder(Config(memory=MemorySection(embedder="sentence")))
    with pytest.raises(ConfigError, match="'hashing' loads no model, got 'bert'; write 'hashing'"):
        make_embedder(Config(memory=MemorySection(embedder="hashing:bert")))


def test_a_file_is_a_member_only_if_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "rooms_of_test"
    (folder / "whole").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "whole" / "__init__.py").write_text("MEMBER = 1\n")
    (folder / "single.py").write_text('MEMBER: int = 2\nraise RuntimeError("a listing imports nothing")\n')
    (folder / "helper.py").write_text('"""It names MEMBER and is none."""\n')
    monkeypatch.syspath_prepend(tmp_path)
    package = __import__("rooms_of_test")
    assert isinstance(package, ModuleType)
    assert members(package) == ["single", "whole"]
