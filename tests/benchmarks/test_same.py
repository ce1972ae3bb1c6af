"""Claim house_5 names what claims need, and tells how a quick run ended.

S1  a claim whose script or text says what `make install` does not bring is named with it
S2  a quick run that fails or takes too long is told with the reason, and is not done again
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.claims import house_5_same
from benchmarks.claims.house_5_same import NEEDS, others, quick_run

SIGNS = {
    "vLLM": r"install_vllm_cpu",
    "the weights": r"make real-models",
    "the files": r"EVOLVE_TEST_DATA",
    "Chromium": r"chromium\(",
    "PostgreSQL": r"new_workspace\(|server_faults",
    "reasoning-gym": r"reasoning-gym",
    "TextWorld": r"needs TextWorld",
}


@pytest.mark.parametrize("need", NEEDS, ids=lambda need: need.what)
def test_claims_are_named_with_what_they_say_that_they_need(need: house_5_same.Need) -> None:
    (sign,) = [pattern for name, pattern in SIGNS.items() if need.what.startswith(name)]
    scripts = {name: (Path(house_5_same.__file__).parent / f"{name}.py").read_text() for name in others()}
    assert set(need.claims) <= set(scripts)
    signed = {name for name, text in scripts.items() if re.search(sign, text)}
    assert signed - set(need.claims) <= {"real_4_peers"}  # it needs vLLM in full alone


def test_a_quick_run_that_fails_is_told_and_kept(tmp_path: Path) -> None:
    first = quick_run("nosuch_1", tmp_path)
    assert (first.code, "No module named" in first.why) == (1, True)
    assert quick_run("nosuch_1", tmp_path) == first


def test_a_quick_run_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    ended = quick_run("house_1_shape", tmp_path, limit=0.01)
    assert (ended.code, ended.why) == (None, "it took too long")
