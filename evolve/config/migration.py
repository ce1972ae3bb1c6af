"""Rewrite an evolve.toml of an earlier version: old keys go where they stand now, with their comments.

The text is taken apart line by line, since what is not rewritten has to stay letter for letter, and a comment has to go
with the key below it.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import unified_diff
from typing import Any

import tomlkit
from tomlkit.items import Item

from evolve.config.renamed import COMBINED, Move, moves, translated
from evolve.errors import ConfigError

Path = tuple[str, ...]
_HEADER = re.compile(r"\s*\[\s*([\w.\-\s]+?)\s*\]\s*(#.*)?$")
_KEY = re.compile(r"(\s*)([\w\-]+)(\s*=)")


@dataclass
class Entry:
    """A key with its value and the comment lines directly above it; without a key, a blank line or a comment."""

    lines: list[str]
    key: str = ""
    above: list[str] = field(default_factory=list[str])

    def called(self, key: str, value: Any = None) -> Entry:
        """Return the entry under another name, and with another value, where one is given."""
        if value is None:
            return Entry([_KEY.sub(rf"\g<1>{key}\g<3>", self.lines[0], count=1), *self.lines[1:]], key, self.above)
        said = "".join(f"  {comment}" for comment in self.beside)
        return Entry([f"{key} = {tomlkit.item(value).as_string()}{said}"], key, self.above)

    @property
    def beside(self) -> list[str]:
        """Return the comment behind the value, as a line of its own; none where there is none."""
        item = tomlkit.parse("\n".join(self.lines)).item(self.key)
        return [item.trivia.comment] if isinstance(item, Item) and item.trivia.comment else []


@dataclass
class Block:
    """A table: its path, its header with the comments above it, and what stands in it."""

    path: Path
    head: list[str]
    entries: list[Entry] = field(default_factory=list[Entry])

    def find(self, key: str) -> Entry | None:
        """Return the entry of a key."""
        return next((each for each in self.entries if each.key == key), None)

    def add(self, entry: Entry) -> None:
        """Put an entry behind the last one that is not blank."""
        at = len(self.entries)
        while at and not "".join(self.entries[at - 1].lines).strip():
            at -= 1
        self.entries.insert(at, entry)

    def lines(self) -> list[str]:
        """Return the block as it is written."""
        return [*self.head, *(line for each in self.entries for line in (*each.above, *each.lines))]


def migrate_file(file: pathlib.Path, *, write: bool) -> tuple[str, list[Move]]:
    """Return how a file changes where its old keys are rewritten, as a diff, and what becomes of each; `write` it.

    Raises `ConfigError` as `migrated`, and for a file that is no TOML. The old file stays until the new one is whole.
    """
    try:
        old = file.read_bytes().decode("utf-8")
        new, found = migrated(old)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as malformed:
        raise ConfigError(f"{file} is no TOML: {malformed}; mend that line") from malformed
    if found and write:
        _replace(file, new)
    return "\n".join(unified_diff(_lines(old), _lines(new), str(file), str(file), lineterm="")), found


def _replace(file: pathlib.Path, text: str) -> None:
    """Put a text in the place of a file, or of what a link names."""
    place = file.resolve()
    part = place.with_name(f"{place.name}.part")
    try:
        part.write_bytes(text.encode("utf-8"))
        shutil.copymode(place, part)
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)


def _lines(text: str) -> list[str]:
    """Return the lines as TOML has them: other characters that end a line elsewhere may stand in a comment."""
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def migrated(text: str) -> tuple[str, list[Move]]:
    """Return a file with its old keys rewritten, and what became of each; its lines end as they did.

    Raises `ConfigError` for a value without a place, and for an old key that stands on no line of its own;
    `TOMLDecodeError` for what is no TOML.
    """
    found, blocks = list(moves(tomllib.loads(text))), _blocks(text)
    for move in found:
        _rewrite(blocks, move)
    if not found:
        return text, []
    new = "\n".join(line for block in blocks for line in block.lines()).rstrip("\n")
    new += "\n" if text.endswith("\n") else ""
    if not _says(new, translated(tomllib.loads(text), warn=False)):
        raise ConfigError("the file cannot be rewritten so that it says the same; the warnings tell what to write")
    return new.replace("\n", "\r\n") if "\r\n" in text else new, found


def _says(text: str, values: Mapping[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == values
    except tomllib.TOMLDecodeError:
        return False


def _blocks(text: str) -> list[Block]:
    blocks, above, lines = [Block((), [])], list[str](), _lines(text)
    while lines:
        line = lines.pop(0)
        if header := _HEADER.match(line):
            blocks.append(Block(tuple(part.strip() for part in header[1].split(".")), [*above, line]))
            above = []
        elif line.strip().startswith("#"):
            above.append(line)
        elif key := _KEY.match(line):
            taken = [line]
            while lines and not _whole(taken):
                taken.append(lines.pop(0))
            blocks[-1].entries.append(Entry(taken, key[2], above))
            above = []
        else:
            blocks[-1].entries += [Entry([each]) for each in (*above, line)]
            above = []
    blocks[-1].entries += [Entry([each]) for each in above]
    return blocks


def _whole(lines: list[str]) -> bool:
    try:
        tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError:
        return False
    return True


def _rewrite(blocks: list[Block], move: Move) -> None:
    """Move one old key; of options of members, which were tables, each of them."""
    path = tuple(move.old.split("."))
    block = _block(blocks, path[:-1])
    entry = block.find(path[-1]) if block else None
    if block is None or entry is None:
        if move.old != "train.options":
            raise ConfigError(f"{move.old} stands on no line of its own; write it as a key of [{path[0]}] first")
        for new, value in move.new.items():
            _rewrite(blocks, Move(new.replace("train.", "train.options.", 1), {new: value}))
        if rest := _block(blocks, path):
            _take_out(blocks, rest, move.new)
        return
    value = tomllib.loads("\n".join(entry.lines))[path[-1]]
    at = block.entries.index(entry)
    block.entries.remove(entry)
    comments = [*entry.above, *entry.beside]  # until they have a place
    for new, wanted in move.new.items():
        *tables, key = new.split(".")
        kept = entry.called(key, None if wanted == value else wanted)
        kept.above = entry.above if comments else []
        target = _made(blocks, tuple(tables))
        there = target.find(key)
        if there is not None and new not in COMBINED:
            continue
        if there is not None:
            place = target.entries.index(there)
            target.entries[place] = there.called(key, wanted)
            target.entries[place].above = [*there.above, *comments]
        elif target is block:
            block.entries.insert(at, kept)
        else:
            target.add(kept)
        comments = []
    if comments:
        block.entries.insert(at, Entry(comments))
    _drop(blocks, block, move.new)


def _block(blocks: list[Block], path: Path) -> Block | None:
    return next((each for each in blocks if each.path == path), None)


def _made(blocks: list[Block], path: Path) -> Block:
    """Return the table at a path, made behind the others of its section where there is none."""
    if found := _block(blocks, path):
        return found
    outer = _block(blocks, path[:-1])
    made = Block(path, [f"[{'.'.join(path)}]"])
    if named := outer.find(path[-1]) if outer else None:  # `loss = "ppo"` beside options of it
        assert outer is not None
        outer.entries.remove(named)
        made.add(named.called("name"))
    kin = [at for at, each in enumerate(blocks) if each.path[:1] == path[:1]]
    at = kin[-1] + 1 if kin else len(blocks)
    if blocks[at - 1].lines() and blocks[at - 1].lines()[-1].strip():
        blocks[at - 1].entries.append(Entry([""]))
    if at < len(blocks):
        made.entries.append(Entry([""]))
    blocks.insert(at, made)
    return made


def _drop(blocks: list[Block], block: Block, new: Mapping[str, Any]) -> None:
    """Take an empty table away."""
    inner = any(each.path[: len(block.path)] == block.path for each in blocks if each is not block)
    if block.path and not inner and not any(each.key for each in block.entries):
        _take_out(blocks, block, new)


def _take_out(blocks: list[Block], block: Block, new: Mapping[str, Any]) -> None:
    """Take a table away; what was said of it goes where its last key went, or stays where that is nowhere."""
    at = blocks.index(block)
    blocks.remove(block)
    said = [*block.head[:-1], block.head[-1].partition("#")[2]]
    said += [line for each in block.entries for line in (*each.above, *(each.beside if each.key else each.lines))]
    comments = [line if line.lstrip().startswith("#") else f"#{line}" for line in said if line.strip()]
    if not comments:
        return
    target = next((found for path in new if (found := _block(blocks, tuple(path.split(".")[:-1])))), None)
    if target:
        target.head = [*comments, *target.head]
    else:
        blocks[at - 1].entries.append(Entry([*comments, ""]))
