"""The queues that predict throughput: closed forms, a simulation, and what was measured.

Q1  exact mean value analysis comes to what is known in closed form, and stays within the asymptotic bounds
Q2  what a run of few rounds would measure is near to what a simulation of such a run measures
Q3  the fit finds the service that it was given, and its stored checks hold
Q4  the guide shows what the script prints
"""

from __future__ import annotations

import heapq
import json
import sys
from math import inf
from pathlib import Path

import pytest

from benchmarks import queueing
from benchmarks.queueing import Station, batch_rate, fitted, measured_rate, throughput


@pytest.mark.parametrize("customers", [1, 2, 50])
def test_one_station_is_always_busy(customers: int) -> None:
    assert throughput([Station("a", 0.25)], 0, customers) == pytest.approx(4)


@pytest.mark.parametrize(("count", "customers"), [(2, 1), (3, 7), (5, 100)])
def test_balanced_stations(count: int, customers: int) -> None:
    wanted = customers / ((count + customers - 1) * 0.1)
    assert throughput([Station(str(at), 0.1) for at in range(count)], 0, customers) == pytest.approx(wanted)
    assert throughput([Station("all", 0.1 * count, alike=count)], 0, customers) == pytest.approx(wanted)


def test_one_station_and_a_delay_are_the_repair_of_machines() -> None:
    """Of `n` machines so many wait with a probability that grows by `(n - k) * demand / think` from k to k + 1."""
    demand, think, machines = 0.3, 2.0, 9
    weights = [1.0]
    for waiting in range(machines):
        weights.append(weights[-1] * (machines - waiting) * demand / think)
    busy = 1 - weights[0] / sum(weights)
    assert throughput([Station("repair", demand)], think, machines) == pytest.approx(busy / demand)


@pytest.mark.parametrize("customers", [1, 3, 10, 200])
def test_throughput_is_within_its_asymptotic_bounds(customers: int) -> None:
    stations = [Station("a", 0.02), Station("b", 0.05), Station("c", 0.3, alike=20)]
    total, think = 0.37, 1.5
    found = throughput(stations, think, customers)
    assert customers / (think + customers * total) <= found <= min(1 / 0.05, customers / (think + total)) + 1e-12


def simulated(service: float, at_once: int, waves: int) -> float:
    """Return what `share_of_ideal` would: a server, first come first served; four calls of a second an episode."""
    parts = [service / 4, service / 8, service / 8, service / 8, service * 3 / 8]
    waiting = [(0.0, number, 0) for number in range(at_once)]
    free, begun, ended = -inf, at_once, list[float]()
    while waiting:
        now, number, part = heapq.heappop(waiting)
        free = max(now, free) + parts[part]
        if part < 4:
            heapq.heappush(waiting, (free + 1, number, part + 1))
            continue
        ended.append(free)
        if begun < at_once * waves:
            heapq.heappush(waiting, (free, begun, 0))
            begun += 1
    return (len(ended) - at_once) / (ended[-1] - ended[0])


@pytest.mark.parametrize(("service", "waves"), [(0.0025, 5), (0.005, 5), (0.011, 5), (0.011, 20), (0.011, 60)])
def test_a_run_of_few_rounds_is_predicted_as_it_is_simulated(service: float, waves: int) -> None:
    predicted = measured_rate([Station("all", service)], 4, 256, waves)
    assert predicted == pytest.approx(simulated(service, 256, waves), rel=0.04)


def test_batches_add_up() -> None:
    """Two stations, three episodes: the first is through after 4.3 s, the others 0.2 s apart, then 3 * 0.5 s."""
    assert batch_rate([Station("a", 0.1), Station("b", 0.2)], 4, 3, 0.5) == pytest.approx(3 / (4.3 + 0.4 + 1.5))


def test_the_fit_finds_the_service_that_it_was_given() -> None:
    rate = measured_rate([Station("all", 0.0123)], 4, 256, 5)
    assert fitted(rate, 4, 256, 5) == pytest.approx(0.0123)


def test_what_was_measured_is_predicted_and_limits_come_in_order() -> None:
    found = queueing.model()
    *errors, shared = [abs(each["error"]) for each in found["checks"]]
    assert max(errors) < 0.1
    assert shared < 0.4  # calls of no time: replies that arrive together share a transaction
    for kind, limits in found["limits"].items():
        assert limits == sorted(limits, key=lambda each: each["most"])
        few, *_, many = [row[kind] for row in found["table"]]
        assert few < many
        assert many == pytest.approx(limits[0]["most"], rel=0.02)


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_the_guide_shows_what_the_script_prints(
    option: list[str], root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["queueing", *option])
    queueing.main()
    printed = capsys.readouterr().out
    shown = queueing.markdown(json.loads(printed)) if option else printed
    assert f"<!-- model -->\n{shown}<!-- /model -->" in (root / "docs/guides/scale.md").read_text()
