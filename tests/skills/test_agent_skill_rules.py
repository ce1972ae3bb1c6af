"""Which folders are valid Agent Skills: the rules of agentskills.io as its own validator applies them, case by case.

C1  the fields: which are needed, which are allowed, how long they may be
C2  the name: lowercase letters and digits of any language, single hyphens, the folder's name (both NFKC-normalised)
C3  the traps of the strict YAML parser: unquoted colons, `---` in a value, flow style, anchors, repeated keys, BOM
C4  the stricter validator in circulation: ASCII names, no angle brackets
"""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from skills.interchange.agent_skills import complaints
from skills.interchange.frontmatter import Malformed, lenient, safe, strict, write

GOOD = "name: my-skill\ndescription: Does a thing. Use when a thing is to be done."


def folder(tmp_path: Path, head: str, name: str = "my-skill", *, raw: bool = False) -> Path:
    """Write a skill folder with this head (or, `raw`, this file) and return it."""
    made = tmp_path / name
    made.mkdir()
    (made / "SKILL.md").write_bytes((head if raw else f"---\n{head}\n---\n# Body\n").encode())
    return made


VALID = {
    "the two needed fields": (GOOD, "my-skill"),
    "all fields": (
        GOOD + "\nlicense: MIT\ncompatibility: Needs git\nallowed-tools: Bash(git:*) Read\nmetadata:\n  a_b: x",
        "my-skill",
    ),
    "64 characters of name": (f"name: {'a' * 64}\ndescription: d", "a" * 64),
    "1024 characters of description": (f"name: my-skill\ndescription: {'d' * 1024}", "my-skill"),
    "500 characters of compatibility": (f"{GOOD}\ncompatibility: {'c' * 500}", "my-skill"),
    "digits": ("name: pdf-2-text\ndescription: d", "pdf-2-text"),
    "a Chinese name": ("name: 技能\ndescription: d", "技能"),
    "a Russian name": ("name: мой-навык\ndescription: d", "мой-навык"),
    "a name in another normal form": (f"name: {unicodedata.normalize('NFD', 'café')}\ndescription: d", "café"),
    "a ligature that NFKC resolves": ("name: \ufb01le\ndescription: d", "file"),
    "a quoted colon": ('name: my-skill\ndescription: "Use when: x"', "my-skill"),
    "fences in the body": (GOOD + "\n---\n# Body\n---\nmore", "my-skill"),
}


@pytest.mark.parametrize("case", VALID)
def test_it_is_valid(case: str, tmp_path: Path) -> None:
    head, name = VALID[case]
    assert complaints(folder(tmp_path, head, name)) == ()


INVALID = {
    "an uppercase name": ("name: My-Skill\ndescription: d", "My-Skill", "lowercase"),
    "65 characters of name": (f"name: {'a' * 65}\ndescription: d", "a" * 65, "at most 64"),
    "a leading hyphen": ("name: -my\ndescription: d", "-my", "start or end"),
    "a trailing hyphen": ("name: my-\ndescription: d", "my-", "start or end"),
    "two hyphens": ("name: my--skill\ndescription: d", "my--skill", "two hyphens"),
    "an underscore": ("name: my_skill\ndescription: d", "my_skill", "letters, digits and hyphens"),
    "a space": ("name: my skill\ndescription: d", "my skill", "letters, digits and hyphens"),
    "an uppercase Russian name": ("name: Навык\ndescription: d", "Навык", "lowercase"),
    "another folder": (GOOD, "other", "must be called"),
    "no name": ("description: d", "my-skill", "`name` is missing"),
    "an empty name": ("name: ''\ndescription: d", "my-skill", "`name` is missing"),
    "no description": ("name: my-skill", "my-skill", "`description` is missing"),
    "a blank description": ("name: my-skill\ndescription: '  '", "my-skill", "`description` is missing"),
    "1025 characters of description": (f"name: my-skill\ndescription: {'d' * 1025}", "my-skill", "at most 1024"),
    "501 characters of compatibility": (f"{GOOD}\ncompatibility: {'c' * 501}", "my-skill", "at most 500"),
    "an unexpected field": (GOOD + "\nversion: 1", "my-skill", "unexpected fields: version"),
    "tools as a list": (GOOD + "\nallowed-tools:\n  - Bash\n  - Read", "my-skill", "`allowed-tools` must be one text"),
    "metadata as a text": (GOOD + "\nmetadata: x", "my-skill", "`metadata` must be a map"),
    "empty metadata": (GOOD + "\nmetadata:", "my-skill", "`metadata` must be a map"),
    "nested metadata": (GOOD + "\nmetadata:\n  a:\n    b: c", "my-skill", "too deeply"),
    "an unquoted colon": ("name: my-skill\ndescription: Use when: x", "my-skill", "no YAML"),
    "a fence within a value": ('name: my-skill\ndescription: "a --- b"', "my-skill", "no YAML"),
    "a flow list": (GOOD + "\nallowed-tools: [Bash, Read]", "my-skill", "flow style"),
    "a flow map": (GOOD + "\nmetadata: {a: b}", "my-skill", "flow style"),
    "an anchor": ("name: &n my-skill\ndescription: *n", "my-skill", "anchor"),
    "a tag": ("name: !!str my-skill\ndescription: d", "my-skill", "tag"),
    "a key twice": (GOOD + "\nname: my-skill", "my-skill", "'name' twice"),
    "a list": ("- name\n- description", "my-skill", "`name: value` lines"),
}


@pytest.mark.parametrize("case", INVALID)
def test_it_is_not_valid_and_says_why(case: str, tmp_path: Path) -> None:
    head, name, said = INVALID[case]
    assert said in " ".join(complaints(folder(tmp_path, head, name)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"\ufeff---\n{GOOD}\n---\n", "byte order mark"),
        ("# no head\n", "must start with"),
        (f"---\n{GOOD}\n", "not closed"),
        ("", "must start with"),
    ],
)
def test_what_has_no_head_is_not_valid(text: str, said: str, tmp_path: Path) -> None:
    assert said in " ".join(complaints(folder(tmp_path, text, raw=True)))


def test_windows_line_breaks_are_valid(tmp_path: Path) -> None:
    text = f"---\n{GOOD}\n---\nbody\n".replace("\n", "\r\n")
    assert complaints(folder(tmp_path, text, raw=True)) == ()


def test_a_folder_without_the_file_and_a_file_are_not_valid(tmp_path: Path) -> None:
    assert "no file" in complaints(tmp_path)[0]
    assert "no folder" in complaints(tmp_path / "nosuch")[0]


def test_values_come_back_as_texts() -> None:
    head, _ = strict(f"---\n{GOOD}\nmetadata:\n  version: 1.0\n  stable: true\n  none: null\n---\n")
    assert head["metadata"] == {"version": "1.0", "stable": "true", "none": "null"}


def test_the_stricter_validator_wants_ascii_and_no_angle_brackets(tmp_path: Path) -> None:
    assert "not ASCII" in complaints(folder(tmp_path, "name: 技能\ndescription: d", "技能"), ascii_only=True)[0]
    made = folder(tmp_path, "name: my-skill\ndescription: a <b> c")
    assert complaints(made) == ()
    assert "angle brackets" in complaints(made, ascii_only=True)[0]


NASTY = (
    *("Use when: x", "a --- b", "----", 'say "no"', "line\nbreak", "tab\tand \\ slash", "# no comment", "emoji 🦊"),
    *("{a: b}", "[x]", "*alias", "&anchor", "!!tag", "true", "1.0", "null", "- item", "a\x00b\x1b[31m"),
    *("\ufeffbom", "\u2028"),
)


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_what_is_written_is_read_back_as_the_safe_text(text: str) -> None:
    head, body = strict(write({"name": "x", "description": text, "metadata": {"a_b": text}}) + "\nbody --- here\n")
    assert head == {"name": "x", "description": safe(text), "metadata": {"a_b": safe(text)}}
    assert body == "body --- here"
    assert "---" not in safe(text)


def test_only_what_cannot_stand_there_is_changed() -> None:
    assert safe("a --- b") == "a — b"
    assert safe("line\nbreak \x00") == "line break "
    assert safe('"quotes", emoji 🦊: -- \\') == '"quotes", emoji 🦊: -- \\'


def test_no_empty_map_is_written() -> None:
    assert "metadata" not in write({"name": "x", "metadata": {}})


def test_lenient_reading_quotes_what_breaks_yaml() -> None:
    head, body = lenient("\ufeff---\nname: x\ndescription: Use when: a --- b\nversion: 2\n---\nbody\n---\n")
    assert head == {"name": "x", "description": "Use when: a --- b", "version": "2"}
    assert body == "body\n---"


@pytest.mark.parametrize(
    "text",
    ["", "no head", "---\nname: x\n", "---\n[[[\n---\n", "---\na: &x\n  - *x\n---\n", "---\n" + "[" * 5000 + "\n---\n"],
    ids=["empty", "none", "open", "broken", "alias", "deep"],
)
def test_what_cannot_be_read_at_all_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        lenient(text)
