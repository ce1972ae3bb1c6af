"""Generations of the workspace's policy: list them, measure one, let one answer, go back."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress

from evolve.config.model import Config
from evolve.generations.workspace_registry import DATABASE, FOLDER, Server, inspected, open_registry
from evolve.workspace.plain_rows import Rows
from memory.errors import NotFound
from memory.records import Frozen
from policies.generations.errors import WrongState
from policies.generations.generation_records import Generation
from policies.generations.generation_registry import Registry
from policies.generations.server_check import CanaryReport

NONE = "no generations: the base model answers; training publishes some"


class GenerationRow(Frozen):
    """One generation of the policy, in a line."""

    version: str
    state: str
    """`candidate`, `canary` (checked, may go live), `live` or `retired`."""
    parent: str | None
    recipe: str | None
    """What training made it."""
    gate: str | None
    """`accepted`, `refused`, `waived` or `not measured`; None of the base."""
    made: str


class Promoted(Frozen):
    """A generation that answers from now on."""

    live: str
    before: str
    canary: CanaryReport | None
    """How far the served adapter was from its reference; None of the base, which has no adapter."""


@contextmanager
def opened(config: Config, *, read_only: bool = False, base: bool = False) -> Generator[Registry]:
    """Open the generations. With `base` the configured model must be theirs, which reads all its weights.

    Raises `NotFound` where there are none yet.
    """
    folder = config.workspace / FOLDER
    if not (folder / DATABASE).exists():
        raise NotFound(NONE)
    with open_registry(config.policy, config.workspace) if base else Registry(folder, read_only=read_only) as registry:
        yield registry


def known(config: Config) -> tuple[Generation, ...]:
    """Return all generations, the base first; none where there are none yet."""
    with suppress(NotFound), opened(config, read_only=True) as registry:
        return tuple(registry.generations())
    return ()


def generations(config: Config) -> Rows[GenerationRow]:
    """Return a row for each of all generations, the base first."""
    return Rows(map(_row, known(config)))


async def promote(config: Config, version: str, server: Server | None = None, *, unmeasured: bool = False) -> Promoted:
    """Let a generation answer from now on: one that the gate accepted, once it passed its canary.

    `unmeasured`: also one that the gate did not accept; the history says so. Raises `WrongState` where the gate did not
    accept it, `NotFound`, and what the canary raises: `PolicyRefused`.
    """
    from evolve.loop.probing import probe_texts
    from policies.generations.swap import swap

    with opened(config, base=True) as registry:
        _require_gate(registry, version, unmeasured)
        before = registry.live().version
        report: CanaryReport | None = None
        if registry.get(version).adapter is None:
            registry.promote(version, "the base model")
        else:
            texts = probe_texts(config)
            report = await inspected(config.policy, registry, swap, version, server, texts)
        return Promoted(live=registry.live().version, before=before, canary=report)


def rollback(config: Config, reason: str = "") -> Promoted:
    """Let the generation before the live one answer again; no server is asked. Raises `NotFound`, `WrongState`."""
    with opened(config) as registry:
        before = registry.live().version
        return Promoted(live=registry.rollback(reason).version, before=before, canary=None)


def _require_gate(registry: Registry, version: str, unmeasured: bool) -> None:
    """Refuse what the gate did not accept, or record that it was not asked for."""
    from evolve.training.promotion_gate import accepted

    generation = registry.get(version)
    if generation.adapter is None or accepted(generation):
        return
    if unmeasured:
        registry.measure(version, {"gate.waived": True})
        return
    said = generation.metrics.get("gate.reason")
    raise WrongState(
        f"{generation.version} {f'was refused by the gate ({said})' if said else 'was not measured by the gate'}; "
        f"run `evolve policy gate {generation.version}`, or promote it with --unmeasured"
    )


def _row(generation: Generation) -> GenerationRow:
    told = generation.metrics
    verdict = {True: "accepted", False: "refused", None: "waived" if told.get("gate.waived") else "not measured"}
    return GenerationRow(
        version=generation.version,
        state=generation.state,
        parent=generation.parent,
        recipe=generation.config.get("recipe"),
        gate=verdict[told.get("gate.accepted")] if generation.adapter else None,
        made=f"{generation.created_at:%Y-%m-%d %H:%M}",
    )
