"""Replies of real models, recorded: hours of a small machine may be spread over days, and a figure is printed again in
minutes.

    python -m benchmarks.real.recorded CLAIM ...        pack what these claims have recorded so far

A claim asks its models through `Recorded.policy`. A reply is kept before it is used, under a key of all that decides
it: the model (`benchmarks.real.models` pins its weights), who asks, the messages, and the sampling parameters with
their seed. A claim that is run again, here or on another machine, takes the replies that it has and asks for those that
it lacks: a changed prompt is asked anew, and nothing else is. What is new goes to `build/real/CLAIM/replies.jsonl`;
`pack` writes all of it to `benchmarks/data/replies/`, which stands in the repository. The prompts are not in it: a
benchmark's questions are not ours to copy.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.table import ROOT
from policies.cache import CachedPolicy
from policies.protocols import Message, Policy, Reply, SamplingParams
from policies.recordings import Recordings
from policies.wrapped import WrappedPolicy

FILE = "replies.jsonl"
PACKED = Path(__file__).parents[1] / "data" / "replies"


def packed(claim: str) -> Path:
    """Return where the replies of a claim stand in the repository."""
    return PACKED / f"{claim}.jsonl.gz"


def packed_by_all() -> list[Path]:
    """Return the packed files of all claims: a key stands in one of them alone, and any claim may need it."""
    return sorted(PACKED.glob("*.gz"))


class _WithoutIds(WrappedPolicy):
    """Leaves out token ids, of which the prompt could be read, and log-probabilities."""

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return the inner policy's reply as text alone. Raises what it raises."""
        reply = await super().generate(messages, params)
        return reply.model_copy(update={"prompt_token_ids": None, "token_ids": None, "logprobs": None})


class Recorded:
    """What the models of one claim have said, now or before."""

    def __init__(self, home: Path, *sources: Path) -> None:
        """Keep replies in `home`, and know those of the packed files `sources` that are there."""
        self.file = home / FILE
        home.mkdir(parents=True, exist_ok=True)
        own = _by_key(self.file)
        known = own.copy()
        for source in sources:
            known = _by_key(source) | known
        if len(known) > len(own):
            part = self.file.with_suffix(".part")
            part.write_text("".join(f"{line}\n" for line in known.values()), encoding="utf-8")
            part.replace(self.file)
        self._store = Recordings(self.file)
        self._policies: list[CachedPolicy] = []

    def policy(self, inner: Policy, who: str) -> Policy:
        """Return a policy that asks `inner` for what is not recorded of it; `who` asks keeps equal requests apart."""
        recorded = CachedPolicy(_WithoutIds(inner), self._store, scope=who)
        self._policies.append(recorded)
        return recorded

    @property
    def asked(self) -> tuple[int, int]:
        """Return how many replies were taken from the recording, and how many were asked for."""
        return sum(each.hits for each in self._policies), sum(each.misses for each in self._policies)


def pack(home: Path, target: Path) -> int:
    """Add the replies that a claim has kept in `home` to a packed file; return how many it holds then.

    Equal replies give an equal file. A key that was recorded twice is kept as it was said last. What another packed
    file beside `target` holds, a claim has from there.
    """
    last = _by_key(target) | _by_key(home / FILE)
    for other in set(target.parent.glob("*.gz")) - {target}:
        for key in _by_key(other):
            last.pop(key, None)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    with part.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as file:
        file.write("".join(f"{last[key]}\n" for key in sorted(last)).encode())
    part.replace(target)
    return len(last)


def _by_key(file: Path) -> dict[str, str]:
    """Return key -> line of a file of replies, packed or not; nothing, where it is not there."""
    if not file.exists():
        return {}
    whole = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return {json.loads(line)["key"]: line for line in whole.decode().split("\n") if line}


def home_of(claim: str) -> Path:
    """Return where a claim keeps its lives and what it records."""
    return Path(ROOT) / "build" / "real" / claim


def main(claims: Sequence[str]) -> int:
    """Pack the replies of the claims; return the exit status."""
    for claim in claims:
        print(f"{claim}: {pack(home_of(claim), packed(claim))} replies in {packed(claim)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
