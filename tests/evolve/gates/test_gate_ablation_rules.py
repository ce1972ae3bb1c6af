"""What leaving things out shows: which differences are enough, and what is said and kept of a change."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evolve.gates.ablation_rules import (
    AblationTrial,
    Left,
    Rules,
    cut_in,
    cut_of,
    decide,
    promising,
    reduced,
    remainder,
    replay,
)
from memory.records import DeltaOp, Op, Provenance, Status, Trust, Verdict
from playbooks.parts import Part, parts

EXACT, CHANCE = Rules(exact=True), Rules(exact=False)


def left(passed: str = "", far: str = "", *, cut: tuple[Part, ...] = (), harm_only: bool = False) -> Left:
    """Return what was seen with it: a `+` passes and a `-` fails by it; in `far` it only comes further, or less far."""
    ids = [f"t{at}" for at in range(len(passed) + len(far))]
    signs = passed + far
    moved = dict(zip(ids[: len(passed)], passed, strict=True))
    steps = {"+": (0.25, 0.5), "-": (0.5, 0.25), "=": (0.5, 0.5)}
    return Left(
        parts=cut,
        cohort=tuple(ids),
        without={key: moved.get(key) == "-" for key in ids},
        with_it={key: moved.get(key) == "+" for key in ids},
        reach={key: steps[sign] for key, sign in zip(ids, signs, strict=True)},
        harm_only=harm_only,
    )


@pytest.mark.parametrize(
    ("seen", "signs"),
    [
        (left(), (0, 0, 0)),
        (left("++-"), (2, 1, 1)),
        (left("+--="), (1, 2, -1)),
        (left("-", "++="), (2, 1, -1)),
        (left("", "+--"), (1, 2, 0)),
    ],
)
def test_it_is_missed_in_some_tasks_and_better_left_out_in_others(seen: Left, signs: tuple[int, int, int]) -> None:
    assert seen.signs() == signs


@pytest.mark.parametrize(
    ("passed", "far", "rules", "matters", "harmless"),
    [
        ("", "", EXACT, False, True),
        ("+", "", EXACT, True, True),
        ("-", "", EXACT, False, False),
        ("+-", "", EXACT, False, False),
        ("++-", "", EXACT, True, True),
        ("=", "", EXACT, False, True),
        ("-", "++", EXACT, False, False),
        ("", "+", EXACT, True, True),
        ("+-", "+", EXACT, True, True),
        ("+++", "", CHANCE, False, True),
        ("++++", "", CHANCE, True, True),
        ("+++++-", "", CHANCE, False, True),
        ("++++++-", "", CHANCE, True, True),
        ("++++", "", Rules(exact=False, level=0.0625), True, True),
        ("++++", "", Rules(exact=False, level=0.0624), False, True),
        ("-", "+++++++", CHANCE, False, False),
    ],
)
def test_what_is_enough(passed: str, far: str, rules: Rules, matters: bool, harmless: bool) -> None:
    """One task is proof where nothing is chance; of what helps already it is enough that it does no harm."""
    assert left(passed, far).matters(rules) is matters
    assert left(passed, far, harm_only=True).matters(rules) is harmless


A, B, C = (Part("content", at, at + 5) for at in (0, 10, 20))


@pytest.mark.parametrize(
    ("trial", "rules", "accepted", "reason", "cut"),
    [
        (AblationTrial(), EXACT, True, "seen to matter beside the others", ()),
        (AblationTrial(left=(left("+"),)), EXACT, True, "seen to matter beside the others", ()),
        (
            AblationTrial(left=(left("+--"),)),
            EXACT,
            False,
            "left out beside the others, it is missed in 1 tasks and better so in 2",
            (),
        ),
        (AblationTrial(parts=(A, B, C)), EXACT, True, "3 of 3 parts were seen to matter", ()),
        (
            AblationTrial(parts=(A, B, C), left=(left("=", cut=(B,)), left("+", cut=(A,)))),
            EXACT,
            True,
            "2 of 3 parts were seen to matter",
            (B,),
        ),
        (
            AblationTrial(parts=(A, B, C), left=(left("=", cut=(C, B)), left("", cut=(A,)))),
            EXACT,
            False,
            "no part of it was seen to matter",
            (C, B, A),
        ),
        (
            AblationTrial(parts=(A, B), left=(left("-"), left("+", cut=(A,)))),
            EXACT,
            False,
            "left out beside the others, it is missed in 0 tasks and better so in 1",
            (),
        ),
        (AblationTrial(parts=(A, B), rest=left("+")), CHANCE, True, "2 of 2 parts were seen to matter", ()),
        (
            AblationTrial(parts=(A, B), rest=left("=")),
            EXACT,
            False,
            "what is left of the changes does not help without what was left out",
            (),
        ),
    ],
)
def test_what_is_decided_of_a_change(
    trial: AblationTrial, rules: Rules, accepted: bool, reason: str, cut: tuple[Part, ...]
) -> None:
    decision = decide(trial, rules)
    assert (decision.accepted, decision.reason) == (accepted, reason)
    assert decision.status is (Status.PROVISIONAL if accepted else Status.REJECTED)
    assert cut_of(decision) == cut
    assert decision.evidence["statistics"]["signs"] == [list(each.signs()) for each in trial.left]
    assert replay(json.loads(json.dumps(decision.evidence))) == decision


@pytest.mark.parametrize(
    ("seen", "hopeful"),
    [
        ((), False),
        ((left("+"),), True),
        ((left("="),), False),
        ((left("+-"),), False),
        ((left("+-", "+"),), True),
        ((left("-", "++"),), False),
        ((left("+"), left("-")), False),
        ((left("-"), left("+")), True),
    ],
)
def test_what_was_left_out_last_may_still_come_to_matter(seen: tuple[Left, ...], hopeful: bool) -> None:
    assert promising(seen) is hopeful


TEXT = "Pay in cents. Sign the mail."


def op(kind: Op = Op.ADD, trust: Trust = Trust.VERIFIED, **fields: Any) -> DeltaOp:
    given = {"op_id": "a", "payload": {"content": TEXT}, "provenance": Provenance(trust=trust)}
    return DeltaOp.model_validate({"op": kind, "status": Status.ACTIVE} | given | fields)


FIRST, LAST = (part for sentence in parts("bullet", {"content": TEXT}) for part in sentence)


@pytest.mark.parametrize(
    ("kind", "trust", "made", "status"),
    [
        (Op.ADD, Trust.VERIFIED, Op.ADD, Status.ACTIVE),
        (Op.ADD, Trust.IMPORTED, Op.ADD, Status.ACTIVE),
        (Op.RESTORE, Trust.IMPORTED, Op.SUPERSEDE, Status.PROVISIONAL),
        (Op.RESTORE, Trust.VERIFIED, Op.SUPERSEDE, Status.ACTIVE),
    ],
)
def test_a_change_without_some_parts(kind: Op, trust: Trust, made: Op, status: Status) -> None:
    change = op(kind, trust, target_id="r1")
    assert reduced(change, ()) is change
    assert reduced(change, [FIRST, LAST]) is None
    less = reduced(change, [FIRST])
    assert less is not None
    assert (less.op, less.status, less.payload) == (made, status, {**(less.payload or {}), "content": "Sign the mail."})


def test_what_is_cut_off_waits_as_a_text_of_its_own() -> None:
    change = op(Op.EDIT, target_id="r1")
    rest = remainder(change, [LAST, FIRST])
    assert (rest.op, rest.op_id, rest.payload) == (Op.ADD, "a/cut", {"content": TEXT})
    assert rest.provenance == change.provenance
    verdict = Verdict(gate="held_out", accepted=("a",), cut={"a": (tuple(FIRST),)})
    assert cut_in(verdict, "a") == (FIRST,)
    assert cut_in(verdict, "b") == ()
