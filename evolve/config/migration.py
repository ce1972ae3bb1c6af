"""Rewrite an evolve.toml of an earlier version: old keys go where they stand now, with their comments.

The text is taken apart line by line, since what is not rewritten has to stay letter for letter, and a comment has to go
with the key below it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
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
        item = tomlkit.parse("\n".join(self.lines)).item(self.key)
        said = item.trivia.comment if isinstance(item, Item) else ""
        return Entry([f"{key} = {tomlkit.item(value).as_string()}" + (f"  {said}" if said else "")], key, self.above)


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


def migrated(text: str) -> tuple[str, list[Move]]:
    """Return a file with its old keys rewritten, and what became of each.

    Raises `ConfigError` for a value without a place, and for an old key that stands on no line of its own.
    """
    found, blocks = list(moves(tomllib.loads(text))), _blocks(text)
    for move in found:
        _rewrite(blocks, move)
    if not found:
        return text, []
    end = "\n" if text.endswith("\n") else ""
    new = "\n".join(line for block in blocks for line in block.lines()).rstrip("\n") + end
    if tomllib.loads(new) != translated(tomllib.loads(text), warn=False):
        raise ConfigError("the file cannot be rewritten so that it says the same; the warnings tell what to write")
    return new, found


def _blocks(text: str) -> list[Block]:
    blocks, above, lines = [Block((), [])], list[str](), text.splitlines()
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
        blocks[:] = [each for each in blocks if each.path != path]
        return
    value = tomllib.loads("\n".join(entry.lines))[path[-1]]
    at = block.entries.index(entry)
    block.entries.remove(entry)
    for number, (new, wanted) in enumerate(move.new.items()):
        *tables, key = new.split(".")
        kept = entry.called(key, None if wanted == value else wanted)
        kept.above = entry.above if number == 0 else []
        target = _made(blocks, tuple(tables))
        there = target.find(key)
        if there is None and target is block:
            block.entries.insert(at, kept)
        elif there is None:
            target.add(kept)
        elif new in COMBINED:
            place = target.entries.index(there)
            target.entries[place] = there.called(key, wanted)
            target.entries[place].above = [*there.above, *kept.above]
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
    """Take an empty table away; what was said of it goes where its last key went."""
    inner = any(each.path[: len(block.path)] == block.path for each in blocks if each is not block)
    if not block.path or inner or any(each.key for each in block.entries):
        return
    blocks.remove(block)
    said = [line for line in (*block.head[:-1], block.head[-1].partition("#")[2]) if line.strip()]
    said += [line for each in block.entries for line in each.lines if line.strip()]
    for path in new:
        target = _block(blocks, tuple(path.split(".")[:-1]))
        if target is not None and said:
            comments = [line if line.lstrip().startswith("#") else f"#{line}" for line in said]
            target.head = [*comments, *target.head]
            return
