"""Claim skills_4: skills leave as valid Agent Skills, come back whole, and run with nothing but Python.

Valid by the specification's rules and by the stricter validator in circulation (`skills.interchange.agent_skills`).
Each script runs in its own `scripts/`, in a Python without site packages in which no package of ours can be imported.
The texts around the functions are as nasty as file formats fear; the functions are plain.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.claim import Row, begin, exactly
from memory.records import Record
from skills.interchange.agent_skills import Standing, complaints, export, load
from skills.library import Library
from skills.record import Skill, SkillTest

SEED, MANY, FEW = 4, 200, 30
SCRIPTS, QUICK_SCRIPTS = 60, 12
PACKAGES = ("evolve", "memory", "skills", "policies", "playbooks", "pydantic")
NASTY = (
    *("Use when: x", "a --- b", "---\nname: other\n---", '"quoted" \\ back', "{a: b} [c]", "*alias &anchor", "🦊 技能"),
    *(
        "# <<< skill f0",
        "# >>> skill f0 3",
        "```\ncode\n```",
        "<b>bold</b>",
        "{{ x }}",
        "%(prog)s",
        "\ufeff\u2028",
        "x" * 1500,
    ),
)
BODIES = (
    ("x: int", "int", "return x + {n}", lambda x, n: x + n),
    ("x: int", "list[int]", "return [{n}, x]", lambda x, n: [n, x]),
    ("x: int", "str", 'text = "n" * x\n    return text + "{n}"', lambda x, n: "n" * x + str(n)),
    ("x: int", "dict[str, int]", 'print("noise")\n    return {{"x": x, "n": {n}}}', lambda x, n: {"x": x, "n": n}),
)


def library(count: int) -> tuple[Library, dict[str, Any]]:
    """Return that many skills and what each answers for x = 3 (None: it needs a host function).

    Every third calls the one before it, and every fifth but these a host function.
    """
    random = Random(SEED)
    skills: list[Skill] = []
    answers: dict[str, Any] = {}
    for n in range(count):
        name, texts = f"f{n}", [" ".join(random.sample(NASTY, 2)) for _ in range(4)]
        parameters, returns, body, answer = BODIES[n % len(BODIES)]
        required: tuple[str, ...] = ()
        lines, answers[name] = body.format(n=n), answer(3, n)
        if n % 3 == 2:
            required, returns = (f"f{n - 1}",), "object"
            lines, answers[name] = f"return f{n - 1}(x)", answers[f"f{n - 1}"]
        elif n % 5 == 0:
            lines, answers[name] = f"return apps.mail.send(n={n})", None
        source = f'# {texts[0]!a}\ndef {name}({parameters}) -> {returns}:\n    """Do {n}."""\n    {lines}\n'
        skills.append(
            Skill(
                source=source,
                summary=texts[1],
                origin=texts[2],
                scenario=texts[3],
                requires=required,
                examples=tuple(texts),
                tests=(SkillTest(code=texts[0], task_id=texts[1]),),
            )
        )
    return Library([Record[Skill](kind=Skill.kind, number=n, payload=skill) for n, skill in enumerate(skills)]), answers


def bare(scripts: Path, arguments: list[str], given: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python in that folder with no environment, no site packages and no user packages."""
    command = [sys.executable, "-E", "-s", "-S", *arguments]
    return subprocess.run(command, cwd=scripts, env={}, input=given, capture_output=True, text=True, timeout=60)


def answers_right(folder: Path, name: str, expected: Any) -> bool:
    """Tell whether the script answers as expected, or refuses and names the host function it needs."""
    done = bare(folder / "scripts", [f"{name}.py"], '{"x": 3}')
    said = json.loads(done.stdout)
    if expected is None:
        return (
            done.returncode == 3 and said["error"]["type"] == "HostFunctionMissing" and "apps.mail.send" in done.stderr
        )
    return done.returncode == 0 and said == {"ok": True, "result": expected}


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed."""
    claim = begin("skills_4_interchange", __doc__)
    made, answers = library(FEW if claim.quick else MANY)
    tried = made.names[: QUICK_SCRIPTS if claim.quick else SCRIPTS]
    with tempfile.TemporaryDirectory(prefix="evolve-export-") as scratch:
        folders = dict(zip(made.names, export(made, dict.fromkeys(made.names, Standing()), Path(scratch)), strict=True))
        valid = sum(not complaints(folder) for folder in folders.values())
        stricter = sum(not complaints(folder, ascii_only=True) for folder in folders.values())
        back = {skill.name: skill for skill in load(Path(scratch)).skills}
        here = folders[tried[0]] / "scripts"
        ours = sum(bare(here, ["-c", f"import {name}"]).returncode == 0 for name in PACKAGES)
        right = {name: answers_right(folders[name], name, answers[name]) for name in tried}
    plain = [ok for name, ok in right.items() if answers[name] is not None]
    hosts = [ok for name, ok in right.items() if answers[name] is None]
    whole = sum(back.get(record.payload.name) == record.payload for record in made.records)
    n = len(folders)
    rows = [
        Row("exported folders that are valid by the specification", valid, exactly(n), n=n, seed=SEED),
        Row("exported folders that pass the stricter validator", stricter, exactly(n), n=n, seed=SEED),
        Row("skills that come back with every field as it was", whole, exactly(n), n=n, seed=SEED),
        Row("packages of ours that the bare Python can import", ours, exactly(0), n=len(PACKAGES)),
        Row("scripts that answer right in it", sum(plain), exactly(len(plain)), n=len(plain)),
        Row("scripts that name the host function they lack", sum(hosts), exactly(len(hosts)), n=len(hosts)),
    ]
    claim.conclude(rows)


if __name__ == "__main__":
    main()
