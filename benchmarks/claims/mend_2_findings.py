"""Claim mend_2: every finding of the audit has a test that failed on the audited source and passes on this one.

The control is the audited commit itself: the same tests run over its source in the same run. A finding counts only
where each of its tests that ran there failed there, and all of its tests pass here. Modules have other names since, so
the files of many tests cannot be imported there: these tests did not run, and say nothing about that source. A finding
none of whose tests ran there cannot be asked, and has no target. How many of these there are stands beside.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks.claim import Row, begin, exactly
from benchmarks.findings import AUDITED, FAILED, PASSED, ROWS, UNIMPORTABLE, Finding, audited_tree, load, outcomes
from benchmarks.table import ROOT

QUICK = ("A9", "A11.help", "A11.version", "D5", "D16")
"""Findings of a quick run: some that can be asked."""


def rows(findings: tuple[Finding, ...], before: dict[str, str], now: dict[str, str]) -> list[Row]:
    """Return the totals, then the row of each finding."""
    each_row = [row_of(each, f"{each.id}: {each.finding} ({', '.join(each.tests)})", before, now) for each in findings]
    held = [row.measured for row in each_row if row.measured is not None]
    tests = sorted({test for each in findings for test in each.tests})
    was, is_now = Counter(before[test] for test in tests), Counter(now[test] for test in tests)
    named = {each.row for each in findings}
    ran = was[FAILED] + was[PASSED]
    return [
        Row("rows of the audit that have a test", len(named & set(ROWS)), exactly(len(ROWS)), n=len(ROWS)),
        Row(
            f"findings mended, of those that can be asked on {AUDITED}: their tests failed there and pass now",
            sum(held) if held else None,
            exactly(len(held)),
            n=len(held),
        ),
        Row(f"findings that cannot be asked on {AUDITED}", len(findings) - len(held), n=len(findings)),
        Row("tests that pass now", is_now[PASSED], exactly(len(tests)), n=len(tests)),
        Row(
            f"tests that ran on {AUDITED} and failed there (control)", was[FAILED] if ran else None, exactly(ran), n=ran
        ),
        Row("tests whose file cannot be imported there", was[UNIMPORTABLE], n=len(tests)),
        *each_row,
    ]


def row_of(finding: Finding, claim: str, before: dict[str, str], now: dict[str, str]) -> Row:
    """Return the row of a finding: 1 where all of its tests that ran on the audited source failed there and all pass
    now. It has neither figure nor target where none of them ran there."""
    ran = [test for test in finding.tests if before[test] in (FAILED, PASSED)]
    if not ran:
        return Row(f"{claim}: cannot be asked on {AUDITED}", None, n=len(finding.tests))
    failed = all(before[test] == FAILED for test in ran)
    held = failed and all(now[test] == PASSED for test in finding.tests)
    return Row(claim, float(held), exactly(1), n=len(ran))


def ask(findings: tuple[Finding, ...]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the outcomes of all tests of some findings: on the audited commit, and here."""
    tests = [test for each in findings for test in each.tests]
    with audited_tree() as tree:
        before = outcomes(tree, tests)
    return before, outcomes(Path(ROOT), tests)


def main() -> None:
    """Measure and record. With `--quick` some findings only, and the exit code is 1 when a target is missed."""
    claim = begin("mend_2_findings", __doc__)
    findings = load()
    if claim.quick:
        findings = tuple(each for each in findings if each.id in QUICK)
    before, now = ask(findings)
    made = rows(findings, before, now)
    claim.conclude(made[1:] if claim.quick else made)


if __name__ == "__main__":
    main()
