"""Agent Skills folders: what leaves comes back whole, and what others wrote comes in as far as it can.

F1  export and import return every field of the payload, whatever the texts say
F2  every exported folder is valid, by the specification and by the stricter validator
F3  lenient import: warned about, cut and refused in a sentence each, never silently
"""

from __future__ import annotations

import json
import keyword
import string
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.errors import BadInput
from memory.records import Record
from skills.interchange.agent_skills import MAX_INSTRUCTION, Standing, complaints, export, kebab, load
from skills.library import Library
from skills.record import Skill, SkillTest
from tests.skills.conftest import Kept

NASTY = st.sampled_from(
    [
        "---\nname: other\n---",
        "\n# <<< skill f\n",
        "# >>> skill f 3\nabc",
        '"""',
        "'''\\",
        "```\n",
        "{{ x }}",
        "🦊\u2028\x00",
        "</skill_content>",
        "%(prog)s %",
        "\r\n",
        "Use when: x",
        "<b>",
        "\ufeff",
        "a" * 2000,
    ]
)
TEXT = st.one_of(NASTY, st.text(max_size=40), st.tuples(NASTY, NASTY).map("".join))
NAME = st.one_of(
    st.text(alphabet=string.ascii_letters + "_", min_size=1, max_size=70),
    st.sampled_from(["payBill", "pay_bill", "pay__bill", "_pay", "é", "技能", "json", "copy"]),
).filter(lambda name: name.isidentifier() and not keyword.iskeyword(name))


def comment(text: str) -> str:
    """Return the text as comment lines: code may hold any text there, marks of ours included."""
    return "".join(f"# {line}\n" for line in text.replace("\x00", "").splitlines())


@st.composite
def skills(draw: st.DrawFn, name: str, callee: str = "") -> Skill:
    """Return a skill with that name, nasty in every field that can be."""
    marks = draw(st.sampled_from(["", f"# <<< skill {name}\n", f"\n# <<< skill {name}\n# >>> skill {name} 2\n"]))
    calls = f"{callee}()" if callee else draw(TEXT.map(repr))
    source = f"{marks}{comment(draw(TEXT))}import json\n\ndef {name}():\n    {draw(TEXT)!r}\n    return {calls}"
    return Skill(
        source=source + draw(st.sampled_from(["", "\n", "\n\n", " # end", "\r\n"])) + marks,
        summary=draw(TEXT),
        origin=draw(TEXT),
        scenario=draw(TEXT),
        requires=(callee,) if callee else (),
        examples=tuple(draw(st.lists(TEXT, max_size=3))),
        tests=tuple(SkillTest(code=draw(TEXT), task_id=draw(TEXT)) for _ in range(draw(st.integers(0, 2)))),
    )


def library(*made: Skill) -> Library:
    return Library([Record[Skill](kind="skill", number=at, payload=one) for at, one in enumerate(made)])


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_skill_comes_back_whole_and_its_folder_is_valid(data: st.DataObject) -> None:
    first, second = data.draw(st.lists(NAME, min_size=2, max_size=2, unique=True))
    callee = data.draw(skills(first))
    caller = data.draw(skills(second, first))
    standing = Standing(task_ids=(data.draw(TEXT),), verified_by=data.draw(TEXT), utility_lcb=0.25)
    with tempfile.TemporaryDirectory() as scratch:
        folders = export(library(callee, caller), {first: standing, second: standing}, Path(scratch))
        assert [complaints(folder, ascii_only=True) for folder in folders] == [(), ()]
        back = load(Path(scratch))
        alone = load(folders[1])
    assert back.refused == back.warnings == back.instructions == ()
    assert {one.name: one for one in back.skills} == {first: callee, second: caller}
    assert {one.name: one for one in alone.skills} == {first: callee, second: caller}


@given(st.lists(NAME, unique=True, max_size=20))
def test_each_name_has_a_folder_of_its_own(names: list[str]) -> None:
    assert len({kebab(name) for name in names}) == len(names)


def test_names_that_can_be_read_back_stay_plain() -> None:
    assert kebab("pay_bill") == "pay-bill"
    assert kebab("payBill").startswith("paybill-")
    assert kebab("技能").startswith("skill-")


def test_metadata_says_what_is_known_of_a_skill(skill: Kept, tmp_path: Path) -> None:
    standing = Standing(version=3, parent_hash="ab", task_ids=("t2", "t1"), n_use=7, n_ok=6, utility_mean=0.5,
                        utility_lcb=-0.125, verified_by="utility")  # fmt: skip
    one = skill(1, "pay").payload
    known = standing.metadata(one)
    names = "version parent_hash created_from n_use n_ok utility_mean utility_lcb verified_by sha256"
    assert list(known) == [f"evolve_{name}" for name in names.split()]
    assert (known["evolve_version"], known["evolve_utility_lcb"], known["evolve_sha256"]) == (
        "3",
        "-0.1250",
        one.sha256,
    )
    assert known["evolve_created_from"] == Standing(task_ids=("t1", "t2")).metadata(one)["evolve_created_from"]
    (made,) = export(Library([skill(1, "pay")]), {"pay": standing}, tmp_path)
    assert all(f'{key}: "{value}"' in (made / "SKILL.md").read_text() for key, value in known.items())


def test_the_task_and_the_tests_of_a_skill_leave_as_evals(tmp_path: Path) -> None:
    source = 'def double(x: int) -> int:\n    """Return twice x."""\n    return 2 * x\n'
    tested = Skill(source=source, origin="Double the bill.", tests=(SkillTest(code="assert double(2) == 4"),))
    records = [Record[Skill](kind=Skill.kind, slug="double", payload=tested)]
    plain = Skill(source=source.replace("double", "twice"))
    records.append(Record[Skill](kind=Skill.kind, slug="twice", payload=plain))
    first, second = export(Library(records), {"double": Standing(), "twice": Standing()}, tmp_path)
    told = json.loads((first / "evals" / "evals.json").read_text())
    assert told["skill_name"] == "double"
    (case,) = told["evals"]
    assert case["prompt"] == "Double the bill."
    assert "assert double(2) == 4" in case["assertions"][0]
    assert not (second / "evals").exists()


def test_nothing_is_written_over_or_in_part(skill: Kept, tmp_path: Path) -> None:
    both = Library([skill(1, "one"), skill(2, "two")])
    export(both, {"two": Standing()}, tmp_path)
    with pytest.raises(BadInput, match="there already"):
        export(both, {"one": Standing(), "two": Standing()}, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["two"]


def test_a_source_that_must_stand_first_cannot_be_a_script(skill: Kept, tmp_path: Path) -> None:
    record = skill(1, source="from __future__ import annotations\ndef f() -> int:\n    return 1\n")
    with pytest.raises(BadInput, match="__future__"):
        export(Library([record]), {"f": Standing()}, tmp_path)


def test_an_edited_function_comes_back_as_edited_and_that_is_said(skill: Kept, tmp_path: Path) -> None:
    (made,) = export(Library([skill(1, "one")]), {"one": Standing()}, tmp_path)
    script = made / "scripts" / "one.py"
    script.write_text(script.read_text().replace("return x", "return x + 1"))
    found = load(made)
    assert found.skills[0].source == skill(1, "one").payload.source.replace("return x", "return x + 1")
    assert "changed after it was exported" in found.warnings[0]


def write(folder: Path, text: str, **scripts: str) -> Path:
    """Write a folder of others: SKILL.md and scripts."""
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text(text)
    for name, code in scripts.items():
        (folder / "scripts" / name.replace("__", ".")).write_text(code)
    return folder


HEAD = "---\nname: pdf\ndescription: Reads PDFs. Use for files that end in .pdf\n---\n"
FUNCTION = "def pages(text: str) -> int:\n    return text.count('page')\n"


def test_text_without_code_is_an_instruction(tmp_path: Path) -> None:
    found = load(write(tmp_path / "pdf", HEAD + "# PDF\n\nOpen it.\n"))
    (text,) = found.instructions
    assert (text.name, text.text, text.when) == (
        "pdf",
        "# PDF\n\nOpen it.",
        "Reads PDFs. Use for files that end in .pdf",
    )
    assert found.skills == found.refused == found.warnings == ()


def test_a_script_that_is_one_function_is_a_skill(tmp_path: Path) -> None:
    found = load(write(tmp_path / "pdf", HEAD + "Use it.", pages__py=FUNCTION))
    assert [(one.name, one.source, one.summary) for one in found.skills] == [
        ("pages", FUNCTION, "Reads PDFs. Use for files that end in .pdf")
    ]
    assert found.instructions == ()


def test_other_scripts_are_refused_and_the_text_is_kept(tmp_path: Path) -> None:
    found = load(write(tmp_path / "pdf", HEAD + "Run it.", run__sh="rm -rf /", cli__py="import os\nprint(os.name)\n"))
    assert [text.split(":")[0] for text in found.refused] == ["pdf/scripts/cli.py", "pdf/scripts/run.sh"]
    assert "one top-level `def`" in found.refused[0]
    assert (found.skills, len(found.instructions)) == ((), 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("---\nname: pdf\n---\nbody", "no description"),
        ("# nothing\n", "no frontmatter"),
        ("---\n- a\n---\nbody", "`name: value`"),
        (HEAD, "neither instructions nor a function"),
    ],
)
def test_what_cannot_be_used_is_refused(text: str, said: str, tmp_path: Path) -> None:
    found = load(write(tmp_path / "pdf", text))
    assert said in found.refused[0]
    assert found.skills == found.instructions == ()


def test_what_breaks_a_rule_is_taken_with_a_warning(tmp_path: Path) -> None:
    write(tmp_path / "a" / "Other", "---\nname: PDF_tool\ndescription: Use when: a pdf\nversion: 1\n---\nbody")
    write(tmp_path / "b", f"---\nname: b\ndescription: {'d' * 2000}\n---\n{'x' * (MAX_INSTRUCTION + 1)}")
    found = load(tmp_path)
    assert [text.name for text in found.instructions] == ["PDF_tool", "b"]
    said = "\n".join(found.warnings)
    for part in ("must be lowercase", "must be called", "unexpected fields: version", "at most 1024", "cut from"):
        assert part in said
    assert len(found.instructions[1].text) == MAX_INSTRUCTION


def test_only_folders_of_skills_are_read_and_links_are_not_followed(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", HEAD + "secret")
    root = tmp_path / "root"
    write(root / "deep" / "er" / "pdf", HEAD + "body")
    write(root / "node_modules" / "pdf", HEAD + "body")
    (root / "link").symlink_to(outside)
    (root / "linked").mkdir()
    (root / "linked" / "SKILL.md").symlink_to(outside / "SKILL.md")
    found = load(root)
    assert [text.text for text in found.instructions] == ["body"]
    assert "is a link" in found.refused[0]
    with pytest.raises(BadInput, match=r"no SKILL\.md"):
        load(root / "node_modules" / "pdf" / "scripts")


@pytest.mark.parametrize(
    "payload", ["{", "[]", '{"format": "x", "version": 1}', '{"format": "evolve-skill", "version": 9}']
)
def test_a_damaged_payload_is_left_out_and_said(payload: str, skill: Kept, tmp_path: Path) -> None:
    (made,) = export(Library([skill(1, "one", origin="o")]), {"one": Standing()}, tmp_path)
    (made / "assets" / "skill.json").write_text(payload)
    found = load(made)
    assert (found.skills[0].source, found.skills[0].origin) == (skill(1, "one").payload.source, "")
    assert "was left out" in found.warnings[0]


def test_a_payload_cannot_bring_another_source(skill: Kept, tmp_path: Path) -> None:
    (made,) = export(Library([skill(1, "one")]), {"one": Standing()}, tmp_path)
    file = made / "assets" / "skill.json"
    stored: dict[str, Any] = json.loads(file.read_text())
    stored["skills"]["one"]["source"] = "def one() -> int:\n    return 666\n"
    file.write_text(json.dumps(stored))
    assert load(made).skills[0].source == skill(1, "one").payload.source
