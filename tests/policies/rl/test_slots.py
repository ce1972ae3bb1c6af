"""Slots are folders, members are files, and names find them."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from memory.errors import BadInput, NotFound
from policies.rl import slots
from policies.rl.advantages.gigpo import gigpo
from policies.rl.advantages.grpo import grpo
from policies.rl.losses.ppo import Ppo
from tests.policies.rl.batches import batch

MEMBERS = [(slot, name) for slot in slots.SLOTS for name in slots.names(slot)]
OWN = """
ready = object()

def signed(episodes, *, scale=1.0):
    return episodes.spread(scale * episodes.rewards)
"""
TRIED = {
    "advantages": {"dr_grpo", "gigpo", "grpo", "r3l", "rloo", "sage", "spo"},
    "losses": {"cispo", "dapo", "gspo", "ppo", "sft"},
    "samplers": {"difficulty", "spo", "uniform"},
    "allocators": {"fixed", "knapsack"},
    "filters": {"everything", "overlong", "zero_variance"},
    "transforms": {"r3l"},
    "corrections": {"tis"},
}
"""Members that a training of ours has shown at work."""


def test_what_could_not_run_is_not_listed() -> None:
    gone = {"transforms": {"cleaner", "rltf"}, "advantages": {"skill_r1", "rltf_sd"}}
    assert {slot: sorted(names & set(slots.names(slot))) for slot, names in gone.items()} == {
        "transforms": [],
        "advantages": [],
    }


def files(folder: Path) -> list[str]:
    return sorted(file.stem for file in folder.glob("*.py") if file.stem != "__init__")


def test_what_is_in_contrib_is_experimental_and_made_with_a_warning(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    marked = {slot: [each for each in slots.names(slot) if slots.experimental(slot, each)] for slot in slots.SLOTS}
    assert marked == {slot: files(root / "contrib" / slot) for slot in slots.SLOTS}, "run `make install`"
    slots.make("advantages", "grpo")
    assert not caplog.records
    slots.make("advantages", "opo", {"singleton": "raw"})
    (line,) = caplog.records
    assert line.getMessage() == "'opo' of advantages is experimental: built from its paper, tried in no training yet"


def test_what_a_training_has_shown_is_in_the_folder_of_its_slot(root: Path) -> None:
    assert {slot: shown - set(files(root / "policies/rl" / slot)) for slot, shown in TRIED.items()} == {
        slot: set() for slot in TRIED
    }


def test_a_member_of_your_own_is_never_called_experimental() -> None:
    assert not slots.experimental("losses", "contrib.losses.gmpo:Gmpo")
    with pytest.raises(NotFound, match="no 'gmp' in losses; there are "):
        slots.experimental("losses", "gmp")


@pytest.mark.parametrize(("slot", "name"), MEMBERS)
def test_each_file_has_one_member_that_names_its_assumption_and_source(slot: str, name: str) -> None:
    member = slots.member(slot, name)
    module = importlib.import_module(member.__module__)
    assert (module.__name__.rpartition(".")[2], module.__all__) == (name, [member.__name__])
    assert "Assumption: " in member.__doc__
    assert "Source" in member.__doc__
    slots.make(slot, name)


def test_options_are_set() -> None:
    episodes = batch([1, 0], anchors=[7, 7])
    assert slots.make("advantages", "grpo") is grpo
    made = slots.make("advantages", "gigpo", {"step_weight": 0.5})
    assert (made(episodes) == gigpo(episodes, step_weight=0.5)).all()
    assert slots.make("losses", "ppo", {"high": 0.3}) == Ppo(high=0.3)


def test_a_misspelt_name_lists_what_there_is() -> None:
    with pytest.raises(NotFound, match=r"no 'grop' in advantages; there are aepo, .*grpo.*, xrpo, or give"):
        slots.make("advantages", "grop")
    with pytest.raises(NotFound, match="no slot 'advantage'; there are advantages, losses, samplers"):
        slots.make("advantage", "grpo")
    with pytest.raises(NotFound, match="no '__init__' in losses"):
        slots.make("losses", "__init__")


def test_options_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BadInput, match=r"'grpo' has the options singleton, eps; missing \[\], unknown \['std'\]"):
        slots.make("advantages", "grpo", {"std": True})
    with pytest.raises(BadInput, match=r"'gspo' has the options low, high; missing \[\], unknown \['aggregation'\]"):
        slots.make("losses", "gspo", {"aggregation": "token-mean"})
    with pytest.raises(BadInput, match=r"'uniform' has the options none; missing \[\], unknown \['stats'\]"):
        slots.make("samplers", "uniform", {"stats": None})


def test_an_option_of_another_type_is_refused() -> None:
    with pytest.raises(BadInput, match="losses 'ppo' got high = 'wide': Input should be a valid number"):
        slots.make("losses", "ppo", {"high": "wide"})
    with pytest.raises(BadInput, match="advantages 'gigpo' got norm = 'median': Input should be 'mean' or 'mean_std'"):
        slots.make("advantages", "gigpo", {"norm": "median"})
    assert slots.make("losses", "ppo", {"high": 1}) == Ppo(high=1.0)


def test_an_option_that_is_an_estimator_is_given_by_its_name() -> None:
    episodes = batch([1, 0, 1], anchors=[7, 7, 7])
    named = slots.make("advantages", "salt", {"base": "gigpo"})
    assert (named(episodes) == slots.make("advantages", "salt", {"base": gigpo})(episodes)).all()
    with pytest.raises(NotFound, match="no 'gigp' in advantages"):
        slots.make("advantages", "salt", {"base": "gigp"})


def test_a_member_of_your_own_is_named_by_its_dotted_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_members.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    estimator = slots.make("advantages", "own_members:signed", {"scale": 3.0})
    assert estimator(batch([1, -1], steps=[2, 1])).tolist() == [3, 3, -3]
    assert slots.make("filters", "own_members:ready") is importlib.import_module("own_members").ready
    with pytest.raises(BadInput, match="has the options none"):
        slots.make("filters", "own_members:ready", {"scale": 3.0})
    with pytest.raises(NotFound, match="'own_members' has no 'sinned'; expected `module:attribute`"):
        slots.make("advantages", "own_members:sinned")
    with pytest.raises(NotFound, match="no module 'own_member' for 'own_member:signed'"):
        slots.make("advantages", "own_member:signed")


def test_an_error_inside_a_module_of_your_own_flies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_more.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        slots.make("advantages", "needs_more:signed")


def python(code: str, *folders: Path) -> str:
    """Run code in a fresh interpreter that looks for modules in the folders first; return what it printed."""
    path = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True)
    assert ran.returncode == 0, ran.stderr.decode()
    return ran.stdout.decode()


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """Return a folder in which another package seems to be installed, with members of its own."""
    told = tmp_path / "others_of_slots-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: others-of-slots\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text(
        "[evolve.advantages]\nsigned = own_members:signed\ngrpo = own_members:signed\nbroken = needs_more:signed\n"
        "gone = own_members:sinned\nopo = own_members:signed\nspaced = own_members : signed\n"
    )
    (tmp_path / "own_members.py").write_text(OWN)
    (tmp_path / "needs_more.py").write_text("import no_such_package\n")
    return tmp_path


def test_another_package_adds_members_that_have_options_and_are_not_experimental(others: Path) -> None:
    out = python(
        "from policies.rl import slots\n"
        "print('signed' in slots.names('advantages'), slots.options('advantages', 'signed'))\n"
        "print(slots.make('advantages', 'signed', {'scale': 3.0}).keywords)\n"
        "print(slots.experimental('advantages', 'signed'))\n"
        "print(slots.make('advantages', 'grpo').__module__, slots.member('advantages', 'opo').__module__)\n"
        "print(slots.member('advantages', 'spaced').__module__)",
        others,
    )
    assert out.splitlines() == [
        "True {'scale': 1.0}",
        "{'scale': 3.0}",
        "False",
        "policies.rl.advantages.grpo contrib.advantages.opo",
        "own_members",
    ]


def test_a_bug_in_a_member_of_another_package_flies_as_what_it_is(others: Path) -> None:
    out = python(
        "from policies.rl import slots\n"
        "for name in ('broken', 'gone'):\n"
        "    try:\n        slots.make('advantages', name)\n"
        "    except Exception as error:\n        print(type(error).__name__, error)",
        others,
    )
    assert out.splitlines() == [
        "ModuleNotFoundError No module named 'no_such_package'",
        "AttributeError module 'own_members' has no attribute 'sinned'",
    ]


def test_what_computes_on_arrays_does_not_load_torch() -> None:
    chosen = [slots.member(slot, name) for slot, name in MEMBERS if slot not in ("losses", "corrections")]
    modules = [member.__module__ for member in chosen]
    out = python(
        f"import sys, policies.rl.slots, policies.rl.tracker, {', '.join(modules)}; print('torch' in sys.modules)"
    )
    assert out == "False\n"


@pytest.mark.parametrize(("name", "place"), [("ppo", "policies.rl.losses.ppo"), ("gmpo", "contrib.losses.gmpo:Gmpo")])
def test_a_missing_torch_is_named_with_what_brings_it(name: str, place: str) -> None:
    out = python(
        "import sys\nsys.modules['torch'] = None\nfrom policies.errors import PolicyUnavailable\n"
        "from policies.rl import slots\n"
        f"try:\n    slots.make('losses', '{name}')\nexcept PolicyUnavailable as error:\n    print(error)"
    )
    assert out.startswith(f"{place} needs the package 'torch', which is not installed; run `pip install")


def test_idle_threads_of_torch_sleep() -> None:
    assert python("import os, policies.rl; print(os.environ['OMP_WAIT_POLICY'])") in ("passive\n", "PASSIVE\n")


def test_numpy_numbers_come_out_as_float64() -> None:
    assert slots.make("advantages", "grpo")(batch([1, 0])).dtype == np.float64
