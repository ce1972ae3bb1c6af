"""`evolve gates`: every verdict of a run with its reason, what the gates spent, and every decision made again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from evolve.cli.opening import reading
from evolve.cli.output import Json, say, show, table

app = typer.Typer(help="What was admitted and why: log, show, replay.", no_args_is_help=True)

RunId = Annotated[
    str | None, typer.Argument(help="Run, or a training that measured texts (`train.candidates`); else the latest run.")
]


@app.command("log")
def log(
    context: typer.Context,
    run_id: RunId = None,
    gate: Annotated[str | None, typer.Option(help="Only what this gate said.")] = None,
    rejected: Annotated[bool, typer.Option("--rejected", help="Only what was rejected.")] = False,
    as_json: Json = False,
) -> None:
    """List what each gate said about each change, then how often the select split was looked at, and at what cost."""
    from evolve.gates.account import exposures, next_level
    from evolve.gates.decision_ledger import spent
    from evolve.gates.held_out_rules import options_of
    from evolve.workspace.upkeep import gate_log, judged_run

    with reading(context) as (config, store):
        record = judged_run(store, run_id)
        settings = record.config.get("gate", {})
        namespace = record.config.get("memory", {}).get("namespace", config.memory.namespace)
        found = gate_log(store, record.run_id, gate=gate or "", rejected=rejected)
        looks = exposures(store, namespace)
        level = next_level(store, namespace, settings.get("held_out", settings).get("alpha", options_of(config).alpha))
        used = spent(store, record.run_id, settings.get("calls_ratio", config.gate.calls_ratio))
    ledger = {
        "looks": sum(look.run_id == record.run_id for look in looks),
        "looks_of_all_runs": len(looks),
        "next_level": level,
        **(used.model_dump() if used else {"calls": 0, "allowed": 0.0, "waiting": 0}),
    }
    if as_json:
        show({"run_id": record.run_id, "verdicts": found.rows(), "ledger": ledger}, True, "")
        return
    rows = [
        {
            "seq": e.seq,
            "gate": e.gate,
            "answer": e.answer,
            "change": e.text,
            "reason": e.reason + "".join(f"\nleft out: {each}" for each in e.left_out),
        }
        for e in found
    ]
    table(rows, False, empty="no gate was asked in this run")
    say(
        f"\nselect split: looked at {ledger['looks']} times in this run, {ledger['looks_of_all_runs']} times in all; "
        f"a strict look now has to reach p <= {level:.3g}\n"
        f"gates spent {ledger['calls']} calls of {ledger['allowed']:.0f} allowed; "
        f"{ledger['waiting']} changes wait to be judged"
    )


@app.command("show")
def show_one(
    context: typer.Context,
    seq: Annotated[int, typer.Argument(help="Number of a verdict, as `evolve gates log` lists it.")],
    as_json: Json = False,
) -> None:
    """Show one verdict whole: who passed, who did not and why, the pass vectors, and what was left out of each text."""
    from evolve.gates.decision_ledger import entries
    from evolve.gates.decisions import ablated_of, rounds_of
    from evolve.gates.gate_events import VERDICT
    from memory.errors import NotFound
    from memory.records import Verdict

    with reading(context) as (_, store):
        found = [event for event in store.events(type=VERDICT, after=seq - 1, limit=1) if event.seq == seq]
        said = [each for each in entries(store, found[0].run_id) if each.seq == seq] if found else []
    if not found:
        raise NotFound(f"no verdict {seq}; list them with `evolve gates log`")
    verdict = Verdict.model_validate(found[0].data)
    lines = [f"gate {verdict.gate}, run {found[0].run_id}, batch {found[0].subject}, status {verdict.status}"]
    for each in said:
        lines += [f"{each.answer} {each.op_id}: {each.text}" + (f" ({each.reason})" if each.reason else "")]
        lines += [f"left out of {each.op_id}: {text}" for text in each.left_out]
    for each in rounds_of(verdict):
        lines += ["", f"about {', '.join(each.get('ops', ()))}", *_vectors(each["trial"])]
    for each in ablated_of(verdict):
        lines += ["", f"parts of {each['ops'][0]}", *_parts(each)]
    show(found[0].data, as_json, "\n".join(lines))


@app.command("replay")
def replay(context: typer.Context, run_id: RunId = None, as_json: Json = False) -> None:
    """Make every decision of a run again from the journal; exit code 1 where one comes out differently."""
    from evolve.gates import decision_ledger
    from evolve.workspace.upkeep import judged_run

    with reading(context) as (_, store):
        found = decision_ledger.replay(store, judged_run(store, run_id).run_id)
    lines = [f"verdict {d.seq} of {d.gate}: journalled {d.journalled}, again {d.again}" for d in found.differences]
    counts = f"{found.decisions} decisions of {found.verdicts} verdicts made again, {len(lines)} differ"
    show(found.model_dump(mode="json"), as_json, "\n".join([*lines, counts]))
    if lines:
        raise typer.Exit(1)


def _vectors(trial: dict[str, Any]) -> list[str]:
    """Return each arm of a trial, or of each of its rounds, as a row of marks, in the cohort's order."""
    marks = {True: "+", False: "-", None: "?"}
    arms = {name: trial[name] for name in ("base", "candidate", "again") if isinstance(trial.get(name), dict)}
    rounds = [
        (f"{name} {k + 1}", arm) for name in ("without", "with_change") for k, arm in enumerate(trial.get(name, ()))
    ]
    arms |= {name.replace("_change", ""): arm for name, arm in rounds}
    return [f"{name:<10} {''.join(marks[arm.get(task)] for task in trial['cohort'])}" for name, arm in arms.items()]


def _parts(evidence: Mapping[str, Any]) -> list[str]:
    """Return a row for each thing that was left out of a change: where it stands, and how many tasks missed it."""
    left = zip(evidence["trial"]["left"], evidence["statistics"]["signs"], strict=True)
    rows: list[str] = []
    for each, (missed, better, _) in left:
        places = ", ".join(f"{name} {start}-{end}" for name, start, end in each["parts"]) or "all of it"
        rows.append(f"without {places}: {missed} tasks worse, {better} better, of {len(each['cohort'])}")
    return rows
