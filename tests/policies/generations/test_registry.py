"""The registry: one live generation, moves in one transaction, a history that only grows, adapters that stay whole."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from memory.errors import NotFound
from policies.generations import generation_registry as module
from policies.generations import storage
from policies.generations.base_model import Base
from policies.generations.errors import AdapterRefused, WrongState
from policies.generations.generation_registry import Registry
from tests.policies.full_disk import largest_file


def published(registry: Registry, source: Path, *, passed: bool = True) -> str:
    version = registry.publish(source, base=registry.base).version
    if passed:
        registry.accept(version, {"to_base": 1.0})
    return version


def test_it_begins_with_the_base_live_and_opens_again(registry: Registry, base: Base) -> None:
    live = registry.live()
    assert (live.version, live.adapter, live.base, registry.previous()) == ("policy-v0", None, base, None)
    with Registry(registry.folder) as again:
        assert again.live() == live
        assert len(again.history()) == 1
    with pytest.raises(NotFound, match="publish an adapter first"):
        Registry(registry.folder / "other")


def test_another_base_is_refused_when_opening_and_when_publishing(registry: Registry, base: Base, adapters) -> None:
    other = base.model_copy(update={"weights": "f" * 64})
    with pytest.raises(WrongState, match=r"adapt .*got .*ffffffffffff"):
        Registry(registry.folder, other)
    with pytest.raises(AdapterRefused, match=r"ffffffffffff .*expected"):
        registry.publish(adapters(1), base=other)
    assert len(registry.generations()) == 1


def test_a_generation_goes_from_candidate_to_live_and_the_old_one_retires(registry: Registry, adapters) -> None:
    version = published(registry, adapters(1), passed=False)
    assert registry.get("1").state == "candidate"
    with pytest.raises(WrongState, match=r"policy-v1 is candidate.*evolve policy canary policy-v1"):
        registry.promote(version)
    registry.accept(version, {"to_reference": 1e-6})
    assert registry.promote(version, "better").state == "live"
    with pytest.raises(WrongState, match="live already"):
        registry.promote(version)
    assert [g.state for g in registry.generations()] == ["retired", "live"]
    said = [(change.type, change.version, change.state) for change in registry.history()]
    assert said[-2:] == [("retired", "policy-v0", "retired"), ("promoted", "policy-v1", "live")]
    assert registry.history(version)[-1].reason == "better"


def test_rollback_goes_back_step_by_step_and_then_is_refused(registry: Registry, adapters) -> None:
    for seed in (1, 2):
        registry.promote(published(registry, adapters(seed)))
    assert registry.rollback("worse on tuesdays").version == "policy-v1"
    assert registry.get("policy-v2").state == "retired"
    assert registry.history("policy-v2")[-1].reason == "worse on tuesdays"
    with pytest.raises(WrongState, match="policy-v2 is retired"):
        registry.promote("policy-v2")
    assert registry.rollback().version == "policy-v0"
    with pytest.raises(WrongState, match="nothing to roll back to"):
        registry.rollback()
    assert registry.live().version == "policy-v0"


def test_the_base_needs_no_canary_to_come_back(registry: Registry, adapters) -> None:
    registry.promote(published(registry, adapters(1)))
    assert registry.promote("policy-v0").adapter is None
    assert registry.rollback().version == "policy-v1"


def test_a_refusal_is_kept_with_its_reason_and_takes_the_canary_back(registry: Registry, adapters) -> None:
    version = published(registry, adapters(1))
    registry.refuse(version, "it only said yes")
    assert registry.get(version).state == "candidate"
    assert registry.history(version)[-1].reason == "it only said yes"
    registry.refuse("policy-v0", "slow today")
    assert registry.live().version == "policy-v0"


def test_metrics_are_added_and_kept(registry: Registry, adapters) -> None:
    made = registry.publish(adapters(1), base=registry.base, metrics={"tgc": 0.5}, config={"lr": 1e-4})
    assert registry.measure(made.version, {"sgc": 0.2}).metrics == {"tgc": 0.5, "sgc": 0.2}
    assert registry.get(made.version).config == {"lr": 1e-4}
    assert registry.get(made.version).parent == "policy-v0"


def test_an_adapter_that_was_changed_is_neither_promoted_nor_rolled_back_to(registry: Registry, adapters) -> None:
    first, second = published(registry, adapters(1)), published(registry, adapters(2))
    registry.promote(first)
    registry.promote(second)
    weights = registry.get(first).adapter / "adapter_model.safetensors"
    kept = weights.read_bytes()
    weights.write_bytes(kept[:-1] + b"x")
    with pytest.raises(WrongState, match=r"sha256 .* expected .*never changed"):
        registry.rollback()
    weights.unlink()
    with pytest.raises(WrongState, match="its adapter cannot be read"):
        registry.rollback()
    assert registry.live().version == second
    weights.write_bytes(kept)
    assert registry.rollback().version == first


def test_an_adapter_altered_after_its_canary_does_not_go_live(registry: Registry, adapters) -> None:
    version = published(registry, adapters(1))
    weights = registry.get(version).adapter / "adapter_model.safetensors"
    kept = weights.read_bytes()
    weights.write_bytes(kept[:-1] + b"x")
    with pytest.raises(WrongState, match=r"sha256 .* expected .*never changed"):
        registry.promote(version)
    assert registry.live().version == "policy-v0"
    weights.write_bytes(kept)
    assert registry.promote(version).state == "live"


def test_the_history_cannot_be_rewritten_and_two_cannot_be_live(registry: Registry, adapters) -> None:
    published(registry, adapters(1))
    for statement in ("DELETE FROM events", "UPDATE events SET reason = 'x'", "UPDATE generations SET state = 'live'"):
        with pytest.raises(sqlite3.IntegrityError):
            registry._file._conn.execute(statement)


def test_a_failure_in_the_middle_of_a_promotion_changes_nothing(
    registry: Registry, adapters, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = published(registry, adapters(1))
    before = (registry.generations(), registry.history())
    monkeypatch.setattr(module, "_json", lambda value: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        registry.promote(version)
    assert (registry.generations(), registry.history()) == before


def test_what_a_killed_process_left_is_neither_served_nor_in_the_way(registry: Registry, adapters) -> None:
    folder = registry.folder / storage.FOLDER
    (folder / ".policy-v1.tmp").mkdir(parents=True)
    (folder / ".policy-v1.tmp" / "half").write_text("x")
    first = registry.publish(adapters(1), base=registry.base)
    assert sorted(path.name for path in first.adapter.iterdir() if path.suffix != ".md") == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "base.json",
    ]
    shutil.copytree(first.adapter, folder / "policy-v2")  # renamed, then killed before it was registered
    second = registry.publish(adapters(2), base=registry.base)
    assert second.version == "policy-v3"
    assert [g.version for g in registry.generations()] == ["policy-v0", "policy-v1", "policy-v3"]
    assert not list(folder.glob(".*.tmp"))


def killed_while_writing(folder: Path, base: Base, source: Path) -> None:
    """Publish, and die where the copy is whole and not yet renamed."""
    Path.rename = lambda *_: os._exit(9)  # type: ignore[assignment,method-assign]
    with Registry(folder, base) as registry:
        registry.publish(source, base=base)


def test_a_process_killed_while_publishing_leaves_no_generation(registry: Registry, base: Base, adapters) -> None:
    child = multiprocessing.get_context("fork").Process(
        target=killed_while_writing, args=(registry.folder, base, adapters(1))
    )
    child.start()
    child.join()
    assert child.exitcode == 9
    folder = registry.folder / storage.FOLDER
    assert [path.name for path in folder.glob("policy-v*")] == []
    assert (folder / ".policy-v1.tmp").is_dir()
    assert registry.publish(adapters(1), base=base).version == "policy-v1"


def test_a_full_disk_is_told_as_one_and_publishes_nothing(registry: Registry, adapters) -> None:
    source = adapters(1)
    with largest_file(1000), pytest.raises(OSError, match="File too large") as told:
        registry.publish(source, base=registry.base)
    assert told.value.errno == errno.EFBIG
    assert len(registry.generations()) == 1
    assert registry.publish(source, base=registry.base).version == "policy-v1"


def test_an_adapter_is_copied_whole_and_the_source_may_go(registry: Registry, adapters, tmp_path: Path) -> None:
    source = Path(shutil.copytree(adapters(1), tmp_path / "source"))
    made = registry.publish(source, base=registry.base)
    shutil.rmtree(source)
    registry.accept(made.version, {})
    assert registry.promote(made.version).adapter == made.adapter


def test_an_unknown_version_names_those_there_are(registry: Registry) -> None:
    with pytest.raises(NotFound, match="no generation 'policy-v7'; there are policy-v0"):
        registry.get("policy-v7")
