"""Record what real models answer in every role, for claim real_7. What is recorded stands in the repository.

    python -m benchmarks.real.replies [REPLIES] [CELL ...]       default: 500 replies of all cells

A cell is a model, a profile of prompts, and whether replies are held to a JSON schema: `smollm2-full-free`. Each has
two lives on train questions of ACE's Formula, one with grades and a teacher, one without grades and with a judge, each
with an even share of the calls. llama.cpp serves the models as their files are, on any processor. The lives are kept
under `build/real/replies`: killed, the same command goes on, and a larger number goes on where a smaller one ended. At
the end all that was recorded is packed into `benchmarks/data/real_replies.jsonl.gz`. A line of it holds a reply and
what judging it needs; of the prompt its hash and the id of its task alone, since the questions are not ours to copy.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from benchmarks.real.files import data
from benchmarks.real.lives import MAX_TOKENS, TIMEOUT_S, served
from benchmarks.table import ROOT
from evolve.config.model import Config
from evolve.episode.echo import PROMPTS
from evolve.episode.journalled_replies import asked_about
from evolve.loop.assembly import open_store
from evolve.loop.runs import DONE, RunRecord
from evolve.loop.session import Parts, aresume, arun
from memory.records import Frozen
from policies.openai_server import OpenAIPolicy, ServerOptions
from policies.openai_transport import Connection
from policies.protocols import Message, Policy, Profile, Reply, SamplingParams
from policies.roles import ACTING, ROLES, Role
from policies.templates import prompt_names, prompt_source
from policies.wrapped import WrappedPolicy

FILE = Path(__file__).parents[1] / "data" / "real_replies.jsonl.gz"
HOME = Path(ROOT) / "build" / "real" / "replies"
MODELS = {"qwen": "qwen2.5-coder-0.5b-instruct", "smollm2": "smollm2-135m-instruct"}
REPLIES, TASKS, APART = 500, 120, 24
"""Replies, train questions of a life at most, and how many questions further each life begins than the one before."""


class Entry(Frozen):
    """One reply."""

    model: str
    profile: Profile
    schema_held: bool
    """It was held to the schema of what its role answers (no acting reply is)."""
    role: str
    task: str
    """Ids of the tasks that it was asked about, with commas between."""
    prompt: str
    """sha256 of the messages."""
    prompts: str
    """sha256 of our prompt files as they were."""
    reply: str
    finish_reason: str
    tokens: int


@dataclass(frozen=True)
class Cell:
    """Who answers, by which prompts, held to a schema or not."""

    model: str
    profile: Profile
    how: Literal["held", "free"]

    @property
    def name(self) -> str:
        """Return the name of its folder."""
        return f"{self.model}-{self.profile}-{self.how}"


CELLS = tuple(
    Cell(model, profile, how) for how in ("held", "free") for profile in ("full", "compact") for model in MODELS
)
LIVES: dict[str, dict[str, Any]] = {
    "graded": {"policy": {"teacher": {"plan_review": True, "retry": True}}},
    "judged": {"run": {"label_free": True, "judge": "policy"}},
}


class RecordingPolicy(WrappedPolicy):
    """Appends each reply to a file before it is used. What a resumed run meets in its journal is not asked again."""

    def __init__(self, policy: Policy, cell: Cell, role: str, file: Path) -> None:
        super().__init__(policy)
        self._cell, self._role, self._file = cell, role, file

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return the inner policy's reply. Raises what it raises."""
        reply = await super().generate(messages, params)
        asked = json.dumps([message.model_dump(mode="json") for message in messages])
        entry = Entry(
            model=self._cell.model,
            profile=self._cell.profile,
            schema_held=self._cell.how == "held" and params.response_schema is not None,
            role=self._role,
            task=asked_about(),
            prompt=hashlib.sha256(asked.encode()).hexdigest(),
            prompts=prompts_hash(),
            reply=reply.text,
            finish_reason=reply.finish_reason,
            tokens=reply.usage.completion_tokens,
        )
        with self._file.open("a", encoding="utf-8") as file:
            file.write(entry.model_dump_json() + "\n")
        return reply


def prompts_hash() -> str:
    """Return the sha256 of all our prompt files."""
    texts = [prompt_source(prompts, name) for prompts in PROMPTS for name in prompt_names(prompts)]
    return hashlib.sha256(b"\0".join(text.encode() for text in texts)).hexdigest()


def formula() -> dict[str, Any]:
    """Return the `[environment]` of the lives. Raises `BadInput` where the files are not."""
    files = {"train": data("formula_train_subset_500.jsonl"), "validation": data("formula_val_subset_300.jsonl")}
    return {"name": "formula", **files}


def record(cells: Sequence[Cell], url: str, calls: int) -> None:
    """Live both lives of each cell until they have made so many calls, or go on with them, all at once."""
    asyncio.run(_recorded(cells, url, calls))


async def _recorded(cells: Sequence[Cell], url: str, calls: int) -> None:
    async def one(cell: Cell, life: str, skip: int) -> None:
        root = HOME / cell.name / life
        root.mkdir(parents=True, exist_ok=True)
        await _lived(_config(cell, life, calls, skip), cell, url, root.with_suffix(".jsonl"))
        print(f"{cell.name}: {life}: {calls} calls", flush=True)

    lives = [(cell, life) for cell in cells for life in LIVES]
    await asyncio.gather(*(one(*lived, APART * at) for at, lived in enumerate(lives)))


def _config(cell: Cell, life: str, calls: int, skip: int) -> Config:
    """Return the configuration of a life that leaves out so many questions.

    One call at a time: none is lost in flight when the last one is spent.
    """
    policy = {"name": "openai", "model": MODELS[cell.model], "profile": cell.profile, "max_tokens": MAX_TOKENS}
    keys = {} if cell.profile == "compact" and life == "graded" else LIVES[life]
    return Config.model_validate(
        {
            "root": HOME / cell.name / life,
            "run": {"tasks": TASKS, "skip": skip, "batch_size": 2, "concurrency": 1, **keys.get("run", {})},
            "policy": {**policy, **keys.get("policy", {})},
            "environment": formula(),
            "controls": {"no_memory": 0.0},
            "budget": {"calls": calls},
        }
    )


async def _lived(config: Config, cell: Cell, url: str, file: Path) -> None:
    """Begin the run of a life, or go on with it."""
    options = ServerOptions(profile=cell.profile, supports_schema=cell.how == "held", token_ids=False)
    policy = OpenAIPolicy(Connection(base_url=url, timeout_s=TIMEOUT_S), MODELS[cell.model], options=options)
    wrapped: dict[Role, Policy] = {role: RecordingPolicy(policy, cell, role, file) for role in ROLES}
    parts = Parts(policy=RecordingPolicy(policy, cell, ACTING, file), roles=wrapped)
    with open_store(config) as store:
        found = [RunRecord.model_validate(each) for each in store.runs()]
    try:
        if not found:
            await arun(config, parts=parts)
        elif found[-1].status != DONE:
            await aresume(config, found[-1].run_id, parts=parts)
    finally:
        await policy.aclose()


def pack(most: int) -> int:
    """Write what was recorded, each file's replies in turn, at most so many; return how many they are."""
    files = sorted(HOME.glob("*/*.jsonl"))
    turns = zip_longest(*(file.read_text(encoding="utf-8").splitlines() for file in files))
    lines = [line for turn in turns for line in turn if line][:most]
    with gzip.GzipFile(FILE, "wb", mtime=0) as packed:
        packed.write("".join(f"{line}\n" for line in lines).encode())
    return len(lines)


def entries(file: Path = FILE) -> Iterator[Entry]:
    """Yield what was packed."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield Entry.model_validate_json(line)


def main() -> None:
    """Record and pack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("replies", nargs="?", type=int, default=REPLIES)
    parser.add_argument("cells", nargs="*", metavar="CELL", help=f"of {', '.join(cell.name for cell in CELLS)}")
    given = parser.parse_args()
    chosen = [cell for cell in CELLS if not given.cells or cell.name in given.cells]
    calls = -(-given.replies // (len(chosen) * len(LIVES)))
    for model in MODELS:
        if mine := [cell for cell in chosen if cell.model == model]:
            with served(MODELS[model], slots=len(mine) * len(LIVES)) as url:
                record(mine, url, calls)
    print(f"{pack(given.replies)} replies in {FILE.name}")


if __name__ == "__main__":
    main()
