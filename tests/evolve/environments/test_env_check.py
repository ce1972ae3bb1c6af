"""`evolve env check` on environments of outsiders: what breaks the contract is named, what is optional is skipped."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.evolve.command import finish, start


@pytest.fixture
def own(tmp_path: Path, root: Path) -> Path:
    """Return a copy of the example's folder, whose environment has gold and no other capability."""
    source = root / "examples" / "own_environment"
    return Path(shutil.copytree(source, tmp_path / "own", ignore=shutil.ignore_patterns(".evolve", "__pycache__")))


def spoil(folder: Path, old: str, new: str) -> None:
    text = (folder / "depot.py").read_text()
    assert old in text
    (folder / "depot.py").write_text(text.replace(old, new))


def found(folder: Path, *, code: int) -> dict[str, str]:
    """Return check -> what is wrong or missing; empty for what passed."""
    out, _ = finish(start(folder, "env", "check", "--json"), code=code)
    return {each["check"]: each["text"] for each in json.loads(out)["checks"]}


def test_a_world_of_text_passes_and_is_told_what_it_could_add(own: Path) -> None:
    out, _ = finish(start(own, "env", "check", "depot:Depot"))
    assert "WRONG" not in out
    assert "ok      gold earns 1.0" in out
    assert "skipped an extra write fails: no state_changing(task)" in out
    assert out.rstrip().endswith("keeps the contract of an environment")
    assert not (own / ".evolve").exists()


def test_a_grader_that_is_always_pleased_is_found(own: Path) -> None:
    spoil(own, "success = all(check.passed for check in checks)", "success = True")
    wrong = found(own, code=1)
    assert "solved by doing nothing" in wrong["doing nothing earns less"]
    assert "solved by what another one did" in wrong["episodes apart"]


def test_an_episode_that_begins_with_its_opening_is_opened_first(own: Path) -> None:
    """As in a run: the opening makes what `step` and `grade` need."""
    asked = "        assert self.ready, 'nobody asked for the opening'\n"
    opening = "    async def opening(self) -> str:\n        self.ready = True\n        return 'The depot is open.'\n\n"
    spoil(own, "    kilos: int\n", "    kilos: int\n    ready = False\n")
    spoil(own, "    async def step(self", f"{opening}    async def step(self")
    for head in ("        try:\n            name, arguments", '        """Compare what left the depot'):
        spoil(own, head, asked + head)
    checks = ("gold earns 1.0", "episodes apart", "mistakes are observations")
    right = found(own, code=0)
    assert [right[check] for check in checks] == ["", "", ""]


def test_episodes_that_share_their_state_are_found(own: Path) -> None:
    spoil(own, "shipped: dict[str, int] = field(default_factory=lambda: dict[str, int]())", "shipped = {}")
    spoil(own, "weighed: set[str] = field(default_factory=lambda: set[str]())", "weighed = set()")
    assert "give each its own state" in found(own, code=1)["episodes apart"]


def test_a_bug_and_a_wrong_return_value_name_their_line(own: Path) -> None:
    spoil(own, "return Outcome(success=success, reward=float(success), checks=checks)", "return success, 1.0")
    wrong = found(own, code=1)["gold earns 1.0"]
    assert "(False, 1.0) (tuple)" in wrong or "(True, 1.0) (tuple)" in wrong
    assert "depot.py:" in wrong


METHODS = {
    "demonstration": "def demonstration(self): ",
    "first scene and tools of a task": "def tools_for(self, task): ",
    "what is read of an episode": "def outside(self, episode): ",
    "canaries": "def breaches(self, task): return []\n    def canaries(self): ",
}


@pytest.mark.parametrize("body", ["1 / 0", "return 7"])
def test_a_bug_in_an_optional_method_is_a_finding_among_the_others(own: Path, body: str) -> None:
    spoil(
        own, "    def start(self", "".join(f"    {head}{body}\n\n" for head in METHODS.values()) + "    def start(self"
    )
    wrong = found(own, code=1)
    for check in METHODS:
        assert "ZeroDivisionError" in wrong[check] if body == "1 / 0" else "returned 7 (int)" in wrong[check]
        assert "depot.py:" in wrong[check]
    assert wrong["gold earns 1.0"] == ""


def test_tasks_of_one_id_are_found_in_every_split(own: Path) -> None:
    lines = (own / "tasks.jsonl").read_text().splitlines()
    (own / "tasks.jsonl").write_text("\n".join([*lines, lines[-1]]))
    assert "was already used on line" in found(own, code=1)["shape"]


def test_a_mistake_that_is_raised_or_hidden_is_found(own: Path) -> None:
    spoil(own, "return StepResult(observation=text, error=text)", "raise")
    wrong = found(own, code=1)["mistakes are observations"]
    assert "step() of environment 'depot' raised" in wrong
    spoil(own, "            raise\n", "            return StepResult(observation='no', error=text)\n")
    assert "the agent does not see" in found(own, code=1)["mistakes are observations"]


def test_a_gold_that_is_too_long_for_the_settings_is_found(own: Path) -> None:
    text = (own / "evolve.toml").read_text()
    (own / "evolve.toml").write_text(text.replace("max_steps = 6", "max_steps = 1"))
    assert "takes 2 actions and max_steps is 1" in found(own, code=1)["gold earns 1.0"]


def test_a_wrong_shape_is_the_only_thing_said(own: Path) -> None:
    spoil(own, 'action_format = "text"', 'action_format = "json"')
    assert list(found(own, code=1)) == ["shape"]


@pytest.mark.parametrize("stuck", ["while True: pass", "await __import__('asyncio').sleep(1e6)"])
def test_a_step_that_never_returns_is_a_finding_that_names_its_line(own: Path, stuck: str) -> None:
    head = "async def step(self, action: Action) -> StepResult:\n"
    spoil(own, head, f"{head}        {stuck}\n")
    out, _ = finish(start(own, "env", "check", "--json", "--limit", "1", "--sample", "1"), code=1)
    wrong = {each["check"]: each["text"] for each in json.loads(out)["checks"]}["gold earns 1.0"]
    line = (own / "depot.py").read_text().splitlines().index(f"        {stuck}") + 1
    assert "had not ended after 1 s" in wrong
    assert f"depot.py:{line}" in wrong
