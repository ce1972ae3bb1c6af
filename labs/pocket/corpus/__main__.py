"""`python -m labs.pocket.corpus OUT.npz`: writes the corpus the pocket model is trained on.

What its processes do stands in `documents`: a process that is spawned does not import a `__main__.py`.
"""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from labs.pocket.corpus.documents import Share, make
from labs.pocket.corpus.pack import Document, write

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


if __name__ == "__main__":
    typer.run(main)
