"""What `make gpu` measured stays where a step is not ended, and claim train_8 reads it with the device's name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import gpu
from benchmarks.claims import train_8_gpu


def broken(out: Path) -> Iterator[gpu.Figure]:
    yield "a model: an update, most memory, GiB", 2.0
    yield "a model: an update, planned, GiB", 1.0
    raise RuntimeError("the device is gone")


def test_figures_stay_where_a_step_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gpu.STEPS, "speed", broken)
    with pytest.raises(RuntimeError):
        gpu.measure("speed", tmp_path)
    said = json.loads((tmp_path / "speed.json").read_text())
    assert [each["value"] for each in said["rows"]] == [2.0, 1.0]
    assert said["device"] == gpu.device()
    on_gpu = train_8_gpu.rows([said | {"device": "NVIDIA H100"}])
    assert [(row.measured, row.ok) for row in on_gpu] == [(2.0, None), (100.0, False), (1.0, None)]


def test_a_plan_that_the_clock_cut_off_is_made_from_the_configuration() -> None:
    figure = "0.5 B: an update on a row of 512 tokens, most memory, GiB"
    unplanned = {"figure": figure, "value": train_8_gpu.planned(figure)}
    device = {"device": "NVIDIA H100", "step": "speed", "rows": [unplanned]}
    assert [(row.measured, row.ok) for row in train_8_gpu.rows([device])][1] == (0.0, True)
    unknown = {"figure": figure.replace("0.5 B", "a model"), "value": 1.0}
    assert [row.ok for row in train_8_gpu.rows([device | {"rows": [unknown]}])] == [None, False]


def test_without_a_gpu_nothing_is_met() -> None:
    here = {"device": "CPU, 2 cores", "step": "parity", "rows": [{"figure": "apart, nats", "value": 0.0}]}
    assert [row.ok for row in train_8_gpu.rows([here])] == [False, None]
    assert [row.ok for row in train_8_gpu.rows([])] == [False]
