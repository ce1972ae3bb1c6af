"""`python -m evolve.corpus OUT.npz`: writes the corpus the pocket model is trained on.

Makes the documents of a range of episodes; the same range gives the same documents in any process.
"""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from evolve.corpus.expert_episodes import Played, play
from evolve.corpus.pack import Document, write
from evolve.corpus.perfect_lessons import curate_document, lessons, reflect_document
from evolve.corpus.setting import FIRST_DEPLOYMENT, LAST_DEPLOYMENT, draw_setting
from evolve.environments.office.house_rules import draw, seeded
from policies.protocols import Message

VOCAB = 2048
"""Size of the tokenizer's vocabulary."""


def main(
    out: Annotated[Path, typer.Argument(help="Corpus file to write (.npz).")],
    episodes: Annotated[int, typer.Option(help="Training episodes to play.")] = 60_000,
    held_out: Annotated[int, typer.Option(help="Episodes held out for validation.")] = 600,
    seed: Annotated[int, typer.Option(help="Seed of the whole corpus.")] = 1,
    workers: Annotated[int, typer.Option(help="Processes that play episodes.")] = 2,
) -> None:
    """Play the scripted expert through offices 1,000 to 99,999 and pack what it did, reflected on and curated."""
    size = 200
    shares = [Share(seed, start, min(size, episodes - start)) for start in range(0, episodes, size)]
    shares.append(Share(seed, episodes, held_out))
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        parts = [list(part) for part in track(pool.imap(make, shares), "Playing", total=len(shares))]
    val: list[Document] = parts.pop()
    train = [document for part in parts for document in part]
    meta = {"episodes": episodes, "held_out": held_out, "seed": seed, "vocab": VOCAB}
    tokens = write(out, train, val, VOCAB, meta)
    print(f"{len(train):,} documents, {tokens:,} tokens, {out.stat().st_size / 1e6:.1f} MB: {out}")


_REFLECT_ON_LESSON, _REFLECT_ON_NOTHING = 0.8, 0.08
_CURATE = 0.7


@dataclass(frozen=True)
class Share:
    """A range of episode numbers under one seed."""

    seed: int
    start: int
    count: int


def make(share: Share) -> list[Document]:
    """Return the documents of a share, in order of episode."""
    return [
        document for number in range(share.start, share.start + share.count) for document in one(share.seed, number)
    ]


def one(seed: int, number: int) -> list[Document]:
    """Return what episode `number` teaches: acting, sometimes reflecting on it, sometimes a curation."""
    rng = seeded("corpus", seed, number)
    deployment = rng.randint(FIRST_DEPLOYMENT, LAST_DEPLOYMENT)
    values = draw(deployment)
    played = play(draw_setting(rng, values, deployment), values, rng)
    documents = [Document("act", played.messages)]
    if rng.random() < (_REFLECT_ON_LESSON if _teaches(played) else _REFLECT_ON_NOTHING):
        documents.append(_document("reflect", *reflect_document(played, rng)))
    if rng.random() < _CURATE:
        documents.append(_document("curate", *curate_document(rng, values)))
    return documents


def _teaches(played: Played) -> bool:
    return bool(lessons(played))


def _document(role: str, prompt: list[Message], reply: str) -> Document:
    return Document(role, (*prompt, Message(role="assistant", content=reply)))


if __name__ == "__main__":
    typer.run(main)
