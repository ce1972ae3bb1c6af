"""The way of a generation to being live: checked, loaded everywhere, its canary passed, then the alias is moved.

Whatever fails, what is live stays live, the version is taken off the server again, and the registry says why.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from policies.errors import PolicyError
from policies.generations.adapters import MAX_RANK, check_adapter
from policies.generations.engine import AdapterEngine, ScoringEngine
from policies.generations.errors import AdapterRefused, CanaryFailed
from policies.generations.generation_records import Generation
from policies.generations.generation_registry import Registry
from policies.generations.server_check import CanaryReport, Prompts, canary


@dataclass(frozen=True)
class Inspection:
    """What a generation must pass before it goes live."""

    reference: ScoringEngine
    """The same base in process."""
    probes: Prompts
    max_rank: int = MAX_RANK
    """Of the server."""


async def inspect(registry: Registry, engine: AdapterEngine, version: str, inspection: Inspection) -> CanaryReport:
    """Check, load and canary a generation; leave it loaded and accepted. Raises `AdapterRefused`, `CanaryFailed`, or
    what the engines raise; then it is not loaded and the registry has the reason."""
    generation = registry.get(version)
    report: CanaryReport | None = None
    try:
        path = checked(generation, inspection.max_rank)
        await engine.load(generation.version, path)
        report = await _canaried(engine, generation.version, path, inspection)
        if report.failures:
            raise CanaryFailed(f"{generation.version} failed its canary: {'; '.join(report.failures)}")
        registry.accept(generation.version, report.model_dump())
    except BaseException as error:
        reason = str(error) if isinstance(error, PolicyError) else f"{type(error).__name__}: {error}"
        registry.refuse(generation.version, reason, report and report.model_dump())
        await unload_unneeded(registry, engine, generation.version)  # the reason is told already
        raise
    return report


async def swap(registry: Registry, engine: AdapterEngine, version: str, inspection: Inspection) -> CanaryReport:
    """Inspect a generation, then let it answer new requests. Raises as `inspect`, and `WrongState`."""
    report = await inspect(registry, engine, version, inspection)
    registry.promote(version, f"canary: {report.to_reference:.3g} off the reference, {report.to_base:.3g} off the base")
    return report


def kept(registry: Registry) -> frozenset[str]:
    """Return the versions that must stay loaded: the live one, and the one that a rollback goes to."""
    previous = registry.previous()
    return frozenset({registry.live().version} | ({previous.version} if previous else set()))


async def unload_unneeded(registry: Registry, engine: AdapterEngine, version: str) -> None:
    """Unload a version that is neither live nor what a rollback goes to, where it is loaded and a server answers."""
    if version not in kept(registry):
        with suppress(PolicyError):
            await engine.unload(version)


def checked(generation: Generation, max_rank: int) -> Path:
    """Return the directory of a generation's adapter, which is as it was published. Raises `AdapterRefused`."""
    if generation.adapter is None:
        raise AdapterRefused(f"{generation.version} is the base model; it has no adapter: promote it, or roll back")
    adapter = check_adapter(generation.adapter, generation.base, max_rank=max_rank)
    if adapter.sha256 != generation.sha256:
        raise AdapterRefused(
            f"{generation.version}: sha256 {adapter.sha256[:12]}, expected {generation.sha256[:12]} as published; "
            "adapters are never changed: publish it anew"
        )
    return generation.adapter


async def _canaried(engine: AdapterEngine, version: str, path: Path, inspection: Inspection) -> CanaryReport:
    """Run the canary with the version in the reference for as long as that takes."""
    reference = inspection.reference
    before = await reference.loaded()
    await reference.load(version, path)
    try:
        return await canary(engine, reference, version, inspection.probes)
    finally:
        if version not in before:
            await reference.unload(version)
