"""Spans get where they should, and whatever stands in their way costs spans, never the run.

D1  an OTLP collector gets protobuf, from the configured address or that of the OTEL_ variables
D2  a dead collector, one that refuses, a full disk, an unusable file: the run is done, one warning says what is lost
D3  what waits is bounded; what is dropped is counted
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider

from evolve.telemetry import exporter
from evolve.telemetry.exporter import Courier
from evolve.telemetry.local import LocalFile
from evolve.telemetry.reading import find, traces
from evolve.telemetry.semconv import METRICS
from memory.errors import JournalError, NotFound
from memory.sqlite.telemetry_file import FILE, erase_content
from tests.evolve.telemetry.collector import Collector, collecting
from tests.evolve.telemetry.doors_traced import go, named, spans_of, traced
from tests.evolve.toy_doors import doors_config
from tests.policies.full_disk import largest_file


def lost(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings about telemetry; there must be no other warning."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("by", ["configuration", "variable"])
async def test_a_collector_gets_protobuf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, by: str
) -> None:
    with collecting(Collector()) as collector:
        if by == "variable":
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
            config = doors_config(tmp_path, run={"batch_size": 3})
        else:
            config = doors_config(tmp_path, run={"batch_size": 3}, telemetry={"otlp_endpoint": collector.url})
        result = await go(config)
    (root,) = [span for span in collector.spans if not span.parent_span_id]
    assert root.name == "invoke_workflow doors"
    told = {attribute.key: attribute.value.string_value for attribute in root.attributes}
    assert told["evolve.run.id"] == result.run_id
    assert len({span.trace_id for span in collector.spans}) == 1
    assert collector.measured == set(METRICS)
    assert not (config.workspace / FILE).exists()
    assert lost(caplog) == []


async def test_both_get_the_same_spans(tmp_path: Path) -> None:
    with collecting(Collector()) as collector:
        config = traced(tmp_path, otlp_endpoint=collector.url + "/")
        result = await go(config)
    assert {span.span_id.hex() for span in collector.spans} == {s["span_id"] for s in spans_of(config, result.run_id)}


@pytest.mark.parametrize("how", ["dead", "refusing"])
async def test_a_collector_that_takes_nothing_costs_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(exporter, "CLOSING", 3600.0)
    with collecting(Collector(status=400)) as collector:
        url = collector.url if how == "refusing" else "http://127.0.0.1:9"
        config = traced(tmp_path, otlp_endpoint=url)
        started = time.monotonic()
        result = await go(config)
        assert time.monotonic() - started < exporter.CLOSING / 6, "the run waited for a collector that takes nothing"
    assert result.status == "done"
    (said,) = lost(caplog)
    count = len(spans_of(config, result.run_id))
    assert f"{count} of {count} spans did not reach {url}" in said
    assert "the run itself is not affected" in said


async def test_a_file_that_cannot_be_used_costs_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = traced(tmp_path)
    (config.workspace / FILE).mkdir(parents=True)
    assert (await go(config)).status == "done"
    (said,) = lost(caplog)
    assert "unable to open" in said


async def test_a_damaged_file_is_said_to_be_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = traced(tmp_path)
    config.workspace.mkdir()
    (config.workspace / FILE).write_bytes(b"no database" * 999)
    assert (await go(config)).status == "done"
    assert "not a database" in lost(caplog)[0]
    with pytest.raises(JournalError, match="Delete this file"):
        traces(config.workspace)


def test_a_full_disk_drops_spans_and_counts_them(tmp_path: Path) -> None:
    file = LocalFile(tmp_path / FILE, "r")
    taking = Courier(file)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(taking)
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("before"):
        pass
    deadline = time.monotonic() + 600
    while taking.delivered < 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    with largest_file(64 * 1024):
        for at in range(2 * exporter.BATCH):
            tracer.start_span(f"big {at}", attributes={"text": "x" * 1000}).end()
        provider.shutdown()
    assert taking.lost >= exporter.BATCH
    assert any(word in taking.error for word in ("full", "disk I/O"))
    assert find(tmp_path, "r")[0]["name"] == "before"


def test_what_waits_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "WAITING", 10)
    monkeypatch.setattr(exporter, "BATCH", 1000)
    taking = Courier(LocalFile(tmp_path / FILE, "r"))
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(taking)
    tracer = provider.get_tracer("test")
    for at in range(100):
        tracer.start_span(f"{at}").end()
    provider.shutdown()
    assert taking.taken == 100
    assert taking.lost == 100 - len(find(tmp_path, "r")) > 0


async def test_captured_content_can_be_erased(tmp_path: Path) -> None:
    config = traced(tmp_path, capture_content=True)
    result = await go(config)
    before = spans_of(config, result.run_id)
    assert erase_content(config.workspace) == len([span for span in before if span["content"]])
    assert [span["attributes"] for span in spans_of(config, result.run_id)] == [span["attributes"] for span in before]
    kept = b"".join(file.read_bytes() for file in config.workspace.glob(f"{FILE}*"))
    assert b"door wants the word" not in kept
    assert erase_content(tmp_path / "nowhere") == 0


async def test_a_task_is_found_with_what_happened_within(tmp_path: Path) -> None:
    config = traced(tmp_path)
    await go(config)
    spans = find(config.workspace, "train-2")
    assert named(spans, "invoke_agent")
    assert named(spans, "evolve.reflect")
    assert {span["task_id"] for span in spans if span["task_id"]} == {"train-2"}
    with pytest.raises(NotFound, match="evolve traces list"):
        find(config.workspace, "train-99")
