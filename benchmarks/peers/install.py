"""Peers in Pythons of their own: each gets a virtual environment outside the repository, by pinned name and version.

    python -m benchmarks.peers.install [NAME ...]      all that have a package, without a name; twice does nothing

The environments lie in `~/.cache/evolve/peers/NAME-VERSION`, or where `EVOLVE_PEERS` points. Nothing of a peer is
imported here and none becomes a dependency. ACE itself was published as a repository: get a checkout of it, and name
its folder in `EVOLVE_PEER_ACE`; only what it needs is installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memory.errors import BadInput, EvolveError
from policies.errors import PolicyUnavailable

CHECKOUT = "EVOLVE_PEER_ACE"
DONE = "installed.txt"
RUNNERS = Path(__file__).with_name("runners")


@dataclass(frozen=True)
class Peer:
    """Another framework, and how it gets here."""

    name: str
    version: str
    """Of the package, or the commit of the checkout."""
    licence: str
    about: str
    needs: tuple[str, ...]
    """Requirements, pinned where the peer is one of them."""
    alone: str | None = None
    """Installed without what it says that it requires, because that is wrong; `needs` holds what it really takes."""
    checkout: str | None = None
    """Environment variable with the folder of a checkout, for a peer without a package."""

    @property
    def runner(self) -> Path:
        """The script that drives it."""
        return RUNNERS / f"run_{self.name}.py"


PEERS = (
    Peer(
        "gepa",
        "0.1.4",
        "MIT",
        "gepa: evolves the system prompt by reflection, selects on a Pareto front",
        ("gepa==0.1.4", "litellm==1.91.5"),
    ),
    Peer(
        "langchain",
        "0.1.0",
        "MIT",
        "langchain-continuous-learning: a middleware with reflector, curator and playbook",
        ("langchain-continuous-learning==0.1.0", "langchain-openai==0.3.35"),
    ),
    Peer(
        "kayba",
        "0.13.0",
        "Apache-2.0",
        "ace-framework: agent, reflector, skill manager with tools; learning in the background",
        ("click>=8.1", "litellm==1.106.2", "pydantic>=2", "pydantic-ai-slim[litellm]==2.68.0", "rank-bm25", "tenacity"),
        # It requires `tau2`, which on the index is a program for magnetic resonance, and Python 3.12, which what is
        # driven here does not need.
        alone="ace-framework==0.13.0",
    ),
    Peer(
        "ace",
        "ba78d34",
        "Apache-2.0",
        "ACE as published (ace-agent/ace): generator, reflector, curator; a checkout",
        ("openai>=1", "python-dotenv", "tiktoken", "numpy", "litellm==1.91.5"),
        checkout=CHECKOUT,
    ),
)


def find(name: str) -> Peer:
    """Return a peer by name. Raises `BadInput` with the names that there are."""
    for peer in PEERS:
        if peer.name == name:
            return peer
    raise BadInput(f"got peer {name!r}; expected one of {', '.join(peer.name for peer in PEERS)}")


def home(peer: Peer) -> Path:
    """Return where a peer's environment is kept."""
    root = Path(os.environ.get("EVOLVE_PEERS") or "~/.cache/evolve/peers").expanduser()
    return root / f"{peer.name}-{peer.version}"


def missing(peer: Peer) -> str:
    """Say why a peer cannot run here, in one sentence; empty where it can."""
    if peer.checkout and not os.environ.get(peer.checkout):
        return f"{peer.checkout} names no checkout of {peer.about}"
    if peer.checkout and not Path(os.environ[peer.checkout]).is_dir():
        return f"{peer.checkout} is {os.environ[peer.checkout]!r}, which is no folder"
    if not (home(peer) / DONE).is_file():
        return f"not installed: python -m benchmarks.peers.install {peer.name}"
    return ""


def python(peer: Peer) -> Path:
    """Return the Python of an installed peer. Raises `BadInput` with the command that installs it."""
    if reason := missing(peer):
        raise BadInput(f"peer {peer.name!r} cannot run: {reason}")
    return home(peer) / "bin" / "python"


def install(peer: Peer) -> Path:
    """Return a peer's folder, made when it is not whole. Raises `PolicyUnavailable` when pip cannot get a package."""
    folder = home(peer)
    if (folder / DONE).is_file():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{peer.name} {peer.version}: installing into {folder}", flush=True)
    venv.create(folder, with_pip=True)
    if peer.alone:
        _pip(peer, "--no-deps", "--ignore-requires-python", peer.alone)
    _pip(peer, *peer.needs)
    frozen = subprocess.run([folder / "bin" / "python", "-m", "pip", "freeze"], capture_output=True, text=True)
    (folder / DONE).write_text(frozen.stdout)
    return folder


def _pip(peer: Peer, *what: str) -> None:
    command = [str(home(peer) / "bin" / "python"), "-m", "pip", "install", "--quiet", "--retries", "1", *what]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = said[-1] if said else f"pip ended with status {done.returncode}"
        raise PolicyUnavailable(f"peer {peer.name!r} could not be installed ({reason}); pip must reach a package index")


def main(arguments: Sequence[str] | None = None) -> int:
    """Install the peers named, or all; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(peer.name for peer in PEERS))
    given = parser.parse_args(arguments)
    try:
        for peer in [find(name) for name in given.names] or PEERS:
            print(f"{peer.name} {peer.version} ({peer.licence}): {install(peer)}", flush=True)
    except EvolveError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
