"""Claim train_7 sets every key of `[train]`, or says why not, and sees one act that does."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import train_keys
from benchmarks.claims.train_7_slots import key_rows
from evolve.config.file import load_config


def test_every_key_is_set_or_left_out_with_a_reason() -> None:
    assert sorted([*train_keys.VALUES, *train_keys.LEFT_OUT]) == sorted(train_keys.keys())
    assert {*train_keys.NEEDS, *train_keys.CHANCE} <= {*train_keys.VALUES}


@pytest.mark.slow
def test_a_key_that_acts_is_told_from_one_that_does_not(tmp_path: Path) -> None:
    (tmp_path / "evolve.toml").write_text(train_keys.SETTINGS)
    rows = key_rows(load_config(tmp_path / "evolve.toml"), ["schedule", "sft.experts", "require_code"])
    _, _, trained, acted, unmoved = rows
    assert trained.ok
    assert (acted.measured, unmoved.measured) == (2, 1)
    assert "require_code" in unmoved.claim
