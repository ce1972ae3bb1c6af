"""Agent Skills folders (agentskills.io): `<name>/SKILL.md` with what a skill needs to run and to come back whole.

Written: SKILL.md with our facts in `metadata`, `scripts/<name>.py` (`skills.interchange.script`), `evals/evals.json`
with the task that a skill was made for and its tests as assertions, `assets/skill.json` with every field of the payload
that is not in the script. Read: these, and leniently what others wrote. A script of others that is one function becomes
a skill; any other is refused, and the text of its folder stays an instruction.

With the evals another client can compare runs with and without the skill, as our gates did (`metadata`: utility_mean).

Whether a folder is valid, `complaints` says by the specification (skills-ref validate, agentskills 69ef37e), with
`ascii_only` also by what Anthropic's `quick_validate` demands (a name in ASCII, no angle brackets in the description).
What we export passes both.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from memory.errors import BadInput, EvolveError
from memory.records import Frozen
from skills.interchange import script
from skills.interchange.found import Found, Instruction, read_text, skill_or_reason
from skills.interchange.frontmatter import Malformed, Value, lenient, safe, strict, write
from skills.library import Library
from skills.record import Skill

PREFIX = "evolve_"
PAYLOAD = Path("assets") / "skill.json"
FORMAT, VERSION = "evolve-skill", 1
DEPTH, MOST_FOLDERS = 6, 2_000
"""How deep below the given folder skills are looked for, and in how many folders at most (the clients' rule)."""
MAX_INSTRUCTION = 20_000
"""Most characters of a text that is imported as an instruction: the specification's 5,000 tokens."""

_SKIPPED = frozenset({".git", "node_modules", "__pycache__"})


class Standing(Frozen):
    """What a record and its journal know of a skill, for `metadata`."""

    version: int = 1
    parent_hash: str = ""
    """Hash of the version before this one."""
    task_ids: tuple[str, ...] = ()
    """Tasks it was made from; only their hash leaves the house."""
    n_use: int = 0
    n_ok: int = 0
    utility_mean: float | None = None
    utility_lcb: float | None = None
    verified_by: str = ""
    """The gate or person that admitted it."""

    def metadata(self, skill: Skill) -> dict[str, str]:
        """Return the entries of `metadata`: flat texts under our prefix; what is not known is left out."""
        tasks = "\n".join(sorted(self.task_ids))
        known: dict[str, object] = {
            "version": self.version,
            "parent_hash": self.parent_hash,
            "created_from": hashlib.sha256(tasks.encode()).hexdigest() if tasks else "",
            "n_use": self.n_use,
            "n_ok": self.n_ok,
            "utility_mean": "" if self.utility_mean is None else f"{self.utility_mean:.4f}",
            "utility_lcb": "" if self.utility_lcb is None else f"{self.utility_lcb:.4f}",
            "verified_by": self.verified_by,
            "sha256": skill.sha256,
        }
        return {PREFIX + name: str(value) for name, value in known.items() if value != ""}


def kebab(name: str) -> str:
    """Return a function's name as the name of its folder: `a-z0-9-`, unique for each name.

    A name that cannot be read back from it (`payBill`, `_pay`, `bezahlé`) gets eight digits of its hash.
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    folder = re.sub("[^a-z0-9]+", "-", plain).strip("-")
    if folder.replace("-", "_") == name and len(folder) <= MAX_NAME:
        return folder
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{folder[: MAX_NAME - 9].strip('-') or 'skill'}-{mark}"


def export(library: Library, chosen: Mapping[str, Standing], out: Path) -> tuple[Path, ...]:
    """Write a folder for each chosen skill below `out` and return the folders.

    Raises `BadInput` when a folder is there already or a skill cannot be a script, and as `Library.closure`; then
    nothing is written.
    """
    files: dict[Path, str] = {}
    for name, standing in chosen.items():
        needed = tuple(record.payload for record in library.closure([name]))
        skill = needed[-1]
        folder = out / kebab(skill.name)
        if folder.exists():
            raise BadInput(f"{str(folder)!r} is there already; remove it or choose another folder")
        files[folder / FILE] = _document(needed, standing)
        files[folder / "scripts" / f"{skill.name}.py"] = script.write(needed)
        files[folder / PAYLOAD] = _payload(needed)
        if cases := write_evals(folder.name, skill):
            files[folder / EVALS] = cases
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    folders = tuple(out / kebab(name) for name in chosen)
    for folder in folders:
        for wrong in complaints(folder, ascii_only=True):
            raise EvolveError(f"{str(folder)!r} was written but is no valid skill ({wrong}); report this as a defect")
    return folders


def load(folder: Path) -> Found:
    """Return what the skill in `folder`, or every skill below it, holds. Raises `BadInput` where there is none."""
    folders = sorted(_folders(folder))
    if not folders:
        raise BadInput(f"no {FILE} in {str(folder)!r} nor below it; give a folder that holds Agent Skills")
    found = Found()
    for one in folders:
        found += _load_one(one)
    unique = {skill.model_dump_json(): skill for skill in found.skills}
    return found.model_copy(update={"skills": tuple(unique.values())})


def _folders(root: Path) -> Iterator[Path]:
    """Yield the folders with a SKILL.md; links are not followed."""
    for seen, (here, below, files) in enumerate(os.walk(root), start=1):
        deep = len(Path(here).relative_to(root).parts)
        below[:] = (
            sorted(name for name in below if name not in _SKIPPED) if deep < DEPTH and seen < MOST_FOLDERS else []
        )
        if FILE in files:
            yield Path(here)


def _load_one(folder: Path) -> Found:
    try:
        head, body = lenient(read_text(folder / FILE))
    except (Malformed, EvolveError) as error:
        return Found(refused=(f"{folder.name}: {error}",))
    description = head.get("description", "")
    if not isinstance(description, str) or not description.strip():
        return Found(refused=(f"{folder.name}: it has no description; write what it does and when to use it",))
    warnings = tuple(f"{folder.name}: {wrong}" for wrong in head_complaints(head, folder.resolve().name))
    found = _scripts(folder, description) + Found(warnings=warnings)
    if found.skills:
        return found + Found(warnings=_changed(folder.name, head, found.skills))
    if not body:
        return found + Found(refused=(f"{folder.name}: it has neither instructions nor a function",))
    if len(body) > MAX_INSTRUCTION:
        found += Found(warnings=(f"{folder.name}: cut from {len(body)} to {MAX_INSTRUCTION} characters",))
    text = Instruction(name=str(head.get("name") or folder.name), text=body[:MAX_INSTRUCTION], when=description)
    return found + Found(instructions=(text,))


def _scripts(folder: Path, description: str) -> Found:
    """Return the skills in the scripts of a folder."""
    fields, found = _fields(folder)
    for path in sorted((folder / "scripts").glob("*")):
        where = f"{folder.name}/scripts/{path.name}"
        if path.suffix != ".py":
            found += Found(refused=(f"{where}: only Python functions can be skills; it was left out",))
            continue
        try:
            text = read_text(path)
        except EvolveError as error:
            found += Found(refused=(f"{where}: {error}",))
            continue
        marked = script.sources(text)
        for name, source in (marked or {"": text}).items():
            known = fields.get(name) if marked else None
            skill = skill_or_reason(source=source, **(known or {"summary": description}))
            found += Found(skills=(skill,)) if isinstance(skill, Skill) else Found(refused=(f"{where}: {skill}",))
    return found


def _fields(folder: Path) -> tuple[dict[str, dict[str, Any]], Found]:
    """Return name -> the fields of its payload beside the source; a file that says none of it is refused."""
    path = folder / PAYLOAD
    if not path.exists():
        return {}, Found()
    try:
        stored = json.loads(read_text(path))
        if stored["format"] != FORMAT or stored["version"] > VERSION:
            raise BadInput(
                f"format {stored['format']!r} version {stored['version']}, expected {FORMAT!r} up to {VERSION}"
            )
        return {
            name: {k: v for k, v in item.items() if k != "source"} for name, item in stored["skills"].items()
        }, Found()
    except (EvolveError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return {}, Found(warnings=(f"{folder.name}: {PAYLOAD} was left out ({type(error).__name__}: {error})",))


def _changed(name: str, head: Mapping[str, Value], skills: Sequence[Skill]) -> tuple[str, ...]:
    metadata = head.get("metadata")
    told = metadata.get(f"{PREFIX}sha256", "") if isinstance(metadata, dict) else ""
    if not told or told in {skill.sha256 for skill in skills}:
        return ()
    return (f"{name}: the function was changed after it was exported",)


def _payload(skills: Sequence[Skill]) -> str:
    fields = {skill.name: skill.model_dump(mode="json", exclude={"source"}) for skill in skills}
    return json.dumps({"format": FORMAT, "version": VERSION, "skills": fields}, indent=2) + "\n"


def _document(skills: Sequence[Skill], standing: Standing) -> str:
    skill, hosts = skills[-1], script.host_functions(skills)
    needs = "Python 3.11 or newer" + (f"; host functions {', '.join(hosts)}" if hosts else "")
    head = {
        "name": kebab(skill.name),
        "description": _description(skill),
        "compatibility": safe(needs)[:MAX_COMPATIBILITY],
        "metadata": standing.metadata(skill),
    }
    return write(head) + "\n" + _body(skills, hosts)


def _description(skill: Skill) -> str:
    does = skill.described() or f"Calls the function {skill.name}."
    when = f" Use it for tasks like: {skill.origin}" if skill.origin else ""
    text = re.sub("[<>]", "|", safe(does + when)) or f"Calls the function {skill.name}."
    return text if len(text) <= MAX_DESCRIPTION else text[: MAX_DESCRIPTION - 1].rstrip() + "…"


def _body(skills: Sequence[Skill], hosts: Sequence[str]) -> str:
    skill = skills[-1]
    parts = [f"# {skill.name}", skill.doc, "## Signature", _fenced(f"{skill.name}{skill.signature}")]
    parts += [
        "## Use",
        f"A JSON object of arguments on stdin, a JSON object back; `python scripts/{skill.name}.py --help`.",
    ]
    if skill.examples:
        parts += ["## Examples", *map(_fenced, skill.examples)]
    if hosts:
        named = ", ".join(f"`{host}`" for host in hosts)
        parts += [
            "## Preconditions",
            f"It calls {named}. A script by itself has no such functions and says so (exit code 3).",
        ]
    if len(skills) > 1:
        parts += ["## Requires", *(f"- `{one.name}{one.signature}`, in the same script" for one in skills[:-1])]
    return "\n\n".join(filter(None, parts)) + "\n"


def _fenced(code: str) -> str:
    longest = max(map(len, re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{code}\n{fence}"


EVALS = "evals/evals.json"


def write_evals(name: str, skill: Skill) -> str:
    """Return the file's text for the skill that is exported as `name`; empty where it has neither task nor test."""
    if not (skill.origin or skill.tests):
        return ""
    case = {
        "id": 1,
        "prompt": skill.origin or skill.described(),
        "expected_output": skill.described(),
        "files": [],
        "assertions": [f"this program runs without an error:\n{test.code.strip()}" for test in skill.tests],
    }
    return json.dumps({"skill_name": name, "evals": [case]}, indent=2) + "\n"


FILE = "SKILL.md"
FIELDS = ("name", "description", "license", "allowed-tools", "metadata", "compatibility")
MAX_NAME, MAX_DESCRIPTION, MAX_COMPATIBILITY = 64, 1024, 500


def complaints(folder: Path, *, ascii_only: bool = False) -> tuple[str, ...]:
    """Return what is wrong with a skill folder, a sentence each; empty = valid."""
    if not folder.is_dir():
        return (f"{str(folder)!r} is no folder",)
    try:
        head, _ = strict(read_text(folder / FILE))
    except (Malformed, EvolveError) as error:
        return (str(error),)
    return head_complaints(head, folder.name, ascii_only=ascii_only)


def head_complaints(head: dict[str, Value], folder: str, *, ascii_only: bool = False) -> tuple[str, ...]:
    """Return what is wrong with the head of a SKILL.md that stands in `folder`."""
    unknown = sorted(set(head) - set(FIELDS))
    said = [f"unexpected fields: {', '.join(unknown)}; allowed are {', '.join(FIELDS)}"] if unknown else []
    said += _name(head.get("name"), folder, ascii_only)
    said += _description_findings(head.get("description"), ascii_only)
    said += _optional(head)
    return tuple(said)


def _name(value: Value | None, folder: str, ascii_only: bool) -> list[str]:
    if not isinstance(value, str) or not value.strip():
        return ["`name` is missing; it must be a text that is not empty"]
    name = unicodedata.normalize("NFKC", value.strip())
    wrong = {
        f"`name` has {len(name)} characters; at most {MAX_NAME}": len(name) > MAX_NAME,
        f"`name` {name!r} must be lowercase": name != name.lower(),
        f"`name` {name!r} must not start or end with a hyphen": name.startswith("-") or name.endswith("-"),
        f"`name` {name!r} must not have two hyphens in a row": "--" in name,
        f"`name` {name!r} may hold letters, digits and hyphens only": not all(c.isalnum() or c == "-" for c in name),
        f"`name` {name!r} is not ASCII": ascii_only and re.fullmatch(r"[a-z0-9-]+", name) is None,
        f"folder {folder!r} must be called as the skill, {name!r}": unicodedata.normalize("NFKC", folder) != name,
    }
    return [text for text, holds in wrong.items() if holds]


def _description_findings(value: Value | None, ascii_only: bool) -> list[str]:
    if not isinstance(value, str) or not value.strip():
        return ["`description` is missing; it must be a text that is not empty"]
    said: list[str] = []
    if len(value) > MAX_DESCRIPTION:
        said.append(f"`description` has {len(value)} characters; at most {MAX_DESCRIPTION}")
    if ascii_only and re.search("[<>]", value):
        said.append("`description` must not hold angle brackets")
    return said


def _optional(head: dict[str, Value]) -> list[str]:
    said: list[str] = []
    for name in ("license", "compatibility", "allowed-tools"):
        if not isinstance(head.get(name, ""), str):
            said.append(f"`{name}` must be one text; got {head[name]!r}")
    compatibility = head.get("compatibility", "")
    if isinstance(compatibility, str) and len(compatibility) > MAX_COMPATIBILITY:
        said.append(f"`compatibility` has {len(compatibility)} characters; at most {MAX_COMPATIBILITY}")
    metadata = head.get("metadata", {})
    if not isinstance(metadata, dict):
        said.append(f"`metadata` must be a map of texts; got {metadata!r}")
    return said
