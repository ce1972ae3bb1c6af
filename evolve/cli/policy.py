"""`evolve policy`: the generations of the workspace's policy: look, compare, check, promote, roll back, serve."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evolve.cli.opening import load
from evolve.cli.output import Json, say, show, table

if TYPE_CHECKING:
    from policies.generations.generation_records import Generation
    from policies.generations.server_check import CanaryReport

app = typer.Typer(
    help="Generations of the policy: list, show, add, diff, canary, gate, promote, rollback, serve.",
    no_args_is_help=True,
)

Version = Annotated[str, typer.Argument(help="Version (policy-v3) or its number.")]
Urls = Annotated[
    list[str] | None,
    typer.Option("--url", help="vLLM server to load it on and to ask (.../v1); repeat for replicas. None: in process."),
]
Rank = Annotated[int, typer.Option("--max-rank", help="Largest LoRA rank that the server takes.")]
AllowMissing = Annotated[
    bool,
    typer.Option("--allow-missing", help="Also where another world of this workspace cannot be opened; says which."),
]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the history.")]


@app.command("list")
def listing(context: typer.Context, as_json: Json = False) -> None:
    """List the generations; the live one is what `evolve run` acts with."""
    from evolve.workspace.policy_versions import NONE, generations, known

    config = load(context)
    rows = [_facts(each) for each in known(config)] if as_json else generations(config).rows()
    table(rows, as_json, empty=NONE)


@app.command("show")
def show_one(context: typer.Context, version: Version, as_json: Json = False) -> None:
    """Show a generation: where its adapter is, what it was trained on, and everything that happened to it."""
    from evolve.workspace.policy_versions import opened

    with opened(load(context), read_only=True) as registry:
        generation = registry.get(version)
        history = [change.model_dump(mode="json") for change in registry.history(generation.version)]
    facts = _facts(generation) | {"adapter_config": _adapter_config(generation)}
    lines = [f"{name}: {'-' if value is None else value}" for name, value in facts.items()]
    lines += ["", *(f"{c['created_at'][:19]}  {c['type']:<11} {c['reason']}".rstrip() for c in history)]
    show(facts | {"history": history}, as_json, "\n".join(lines))


@app.command()
def add(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(help="Of an adapter (PEFT) of the configured base.")],
    as_json: Json = False,
) -> None:
    """Register an adapter that was trained elsewhere: a candidate, like one that was trained here."""
    from evolve.generations.workspace_registry import model_directory, open_registry
    from policies.generations.base_model import base_of

    config = load(context)
    with open_registry(config.policy, config.workspace) as registry:
        base = base_of(model_directory(config.policy))
        made = registry.publish(directory, base=base, config={"recipe": "added", "source": str(directory.resolve())})
    show(_facts(made), as_json, f"{made.version} is a candidate; next: evolve policy gate {made.version}")


@app.command()
def diff(context: typer.Context, one: Version, other: Version, as_json: Json = False) -> None:
    """Compare the metrics and the settings of two generations."""
    from evolve.workspace.policy_versions import opened

    with opened(load(context), read_only=True) as registry:
        pair = (registry.get(one), registry.get(other))
    sides = [_compared(generation) for generation in pair]
    names = sorted({*sides[0], *sides[1]})
    rows = [
        {"what": name, pair[0].version: left, pair[1].version: right, "change": _change(left, right)}
        for name in names
        if (left := sides[0].get(name)) != (right := sides[1].get(name)) or name.startswith("metrics.")
    ]
    table(rows, as_json, empty=f"{pair[0].version} and {pair[1].version} have equal settings and no metrics")


@app.command()
def canary(
    context: typer.Context,
    version: Version,
    url: Urls = None,
    max_rank: Rank = 16,
    as_json: Json = False,
) -> None:
    """Check an adapter, load it, and compare what is served with peft and with the base; exit code 1 if it fails.

    Its prompts are those of this workspace's latest episodes. Passed, it may be promoted once the gate accepted it.
    Failed, the history says why and nothing else changes.
    """
    from evolve.generations.workspace_registry import Server, inspected
    from evolve.loop.probing import probe_texts
    from evolve.training.promotion_gate import accepted
    from evolve.workspace.policy_versions import opened
    from policies.errors import PolicyRefused
    from policies.generations.swap import inspect

    config, server = load(context), Server(tuple(url or ()), max_rank)
    with opened(config, base=True) as registry:
        try:
            texts = probe_texts(config)
            report = asyncio.run(inspected(config.policy, registry, inspect, version, server, texts))
            verb = "promote" if accepted(registry.get(version)) else "gate"
        except PolicyRefused as error:
            if as_json:
                show({"version": version, "passed": False, "reason": str(error)}, as_json, "")
                raise typer.Exit(1) from error
            raise
    show(
        report.model_dump() | {"passed": True},
        as_json,
        f"passed: {_said(report)}; next: evolve policy {verb} {version}",
    )


@app.command()
def gate(
    context: typer.Context,
    version: Version,
    gguf: Annotated[
        Path | None,
        typer.Option("--gguf", help="The base in GGUF: both sides act on llama.cpp, as they are served."),
    ] = None,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Of llama.cpp; none = a core each.")] = None,
    allow_missing: AllowMissing = False,
    as_json: Json = False,
) -> None:
    """Measure a generation beside the live one on held-out tasks, here with the playbook and without it, and in every
    other world that this workspace worked in.

    Both act on the servers of policy `served`, with `--gguf` on llama.cpp, else in this process.

    Accepted, it may be promoted; refused, the exit code is 1.
    """
    from evolve.training.promotion_gate import judged, on_llama
    from evolve.workspace.policy_versions import opened
    from policies.llama_server import LlamaOptions

    config = load(context)
    with opened(config) as registry:
        name = registry.get(version).version
    options = LlamaOptions(slots=config.run.concurrency, threads=threads)
    side = on_llama(gguf, options) if gguf else None
    trial = judged(config, name, side, allow_missing=allow_missing)
    if as_json:
        show(trial.model_dump(mode="json"), as_json, "")
    else:
        table(trial.rows(), as_json, empty="")
        say(f"{'accepted' if trial.accepted else 'refused'}: {trial.reason} (look {trial.look} at these tasks)")
        for world, why in trial.missing.items():
            say(f"not measured: {world} ({why})")
        say(f"the playbook takes {trial.playbook_tokens:.0f} tokens of a prompt")
    raise typer.Exit(0 if trial.accepted else 1)


@app.command()
def promote(
    context: typer.Context,
    version: Version,
    url: Urls = None,
    max_rank: Rank = 16,
    unmeasured: Annotated[
        bool, typer.Option("--unmeasured", help="Also one that the gate did not accept; the history says so.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Let a generation answer from now on: one that the gate accepted, once it passed its canary.

    Requests under way end as they began.
    """
    from evolve.generations.workspace_registry import Server
    from evolve.workspace import policy_versions

    server = Server(tuple(url or ()), max_rank)
    done = asyncio.run(policy_versions.promote(load(context), version, server, unmeasured=unmeasured))
    told = f" ({_said(done.canary)})" if done.canary else ""
    text = f"{done.live} is live{told}; before it {done.before}: `evolve policy rollback` goes back"
    show(done.model_dump(mode="json"), as_json, text)


@app.command()
def rollback(context: typer.Context, reason: Reason = "", as_json: Json = False) -> None:
    """Let the generation before the live one answer again. No server is asked."""
    from evolve.workspace import policy_versions

    done = policy_versions.rollback(load(context), reason)
    text = f"{done.live} is live again; {done.before} is retired"
    show({"live": done.live, "rolled_back": done.before}, as_json, text)


def _said(report: CanaryReport) -> str:
    return (
        f"{report.tokens} tokens, at most {report.to_reference:.2g} off the peft reference, {report.to_base:.2g} off "
        f"the base; {report.arrived:.0%} of the adapter's change is served"
    )


def _facts(generation: Generation) -> dict[str, Any]:
    data = generation.model_dump(mode="json", exclude={"number", "base"})
    first = ("version", "state", "parent", "before", "metrics", "created_at")
    return {name: data[name] for name in first} | data | generation.base.model_dump()


def _compared(generation: Generation) -> dict[str, Any]:
    parts = {"metrics": generation.metrics, "config": generation.config, "lora": _adapter_config(generation)}
    return {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}


def _adapter_config(generation: Generation) -> dict[str, Any]:
    """Return what was said to peft, without what is empty; nothing of a whole model."""
    import json

    from policies.generations.adapters import CONFIG
    from policies.generations.whole_model import is_whole

    if generation.adapter is None or is_whole(generation.adapter):
        return {}
    written = json.loads((generation.adapter / CONFIG).read_text(encoding="utf-8"))
    return {name: value for name, value in sorted(written.items()) if value not in (None, False, [], {}, "")}


def _change(left: Any, right: Any) -> float | None:
    numbers = [value for value in (left, right) if isinstance(value, int | float) and not isinstance(value, bool)]
    return right - left if len(numbers) == 2 else None
