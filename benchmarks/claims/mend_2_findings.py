"""Claim mend_2: every finding of the audit has a test that failed on the audited source and passes on this one.

The control is the audited commit itself: the same tests run over its source in the same run. A finding counts only
where each of its tests failed there and passes here. A test that cannot even be imported there has failed too; how
many of these there are stands beside.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks.claim import Row, begin, exactly
from benchmarks.findings import AUDITED, FAILED, PASSED, ROWS, UNIMPORTABLE, Finding, audited_tree, load, outcomes
from benchmarks.table import ROOT

QUICK = 5


def rows(findings: tuple[Finding, ...], before: dict[str, str], now: dict[str, str]) -> list[Row]:
    """Return the totals, then one row for each finding: 1 where its tests failed before and pass now."""
    held = [all(_mended(test, before, now) for test in each.tests) for each in findings]
    asked = sorted({test for each in findings for test in each.tests})
    was, is_now = Counter(before[test] for test in asked), Counter(now[test] for test in asked)
    named = {each.row for each in findings}
    return [
        Row("rows of the audit that have a test", len(named & set(ROWS)), exactly(len(ROWS)), n=len(ROWS)),
        Row(
            "findings mended: every test failed before and passes now",
            sum(held),
            exactly(len(held)),
            n=len(held),
        ),
        Row("tests that pass now", is_now[PASSED], exactly(len(asked)), n=len(asked)),
        Row(
            f"tests that fail on {AUDITED} (control)",
            was[FAILED] + was[UNIMPORTABLE],
            exactly(len(asked)),
            n=len(asked),
        ),
        Row("of these, tests whose file cannot be imported there", was[UNIMPORTABLE], n=len(asked)),
        *[
            Row(
                f"{each.id}: {each.finding} ({', '.join(each.tests)})",
                float(mended),
                exactly(1),
                n=len(each.tests),
            )
            for each, mended in zip(findings, held, strict=True)
        ],
    ]


def _mended(test: str, before: dict[str, str], now: dict[str, str]) -> bool:
    return before[test] in (FAILED, UNIMPORTABLE) and now[test] == PASSED


def ask(findings: tuple[Finding, ...]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the outcomes of all tests of some findings: on the audited commit, and here."""
    tests = [test for each in findings for test in each.tests]
    with audited_tree() as tree:
        before = outcomes(tree, tests)
    return before, outcomes(Path(ROOT), tests)


def main() -> None:
    """Measure and record. With `--quick` the first findings only, and the exit code is 1 when a target is missed."""
    claim = begin("mend_2_findings", __doc__)
    findings = load()
    if claim.quick:
        findings = findings[:QUICK]
    before, now = ask(findings)
    made = rows(findings, before, now)
    claim.conclude(made[1:] if claim.quick else made)


if __name__ == "__main__":
    main()
