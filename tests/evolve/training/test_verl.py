"""verl's loop of agents: a member in, its rows with what it was paid out. Where verl is installed, as its own class."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from evolve.config.model import Config, EnvironmentSection
from evolve.environments.office.episode import OfficeEpisode
from evolve.errors import EnvironmentFailure
from evolve.training.verl import ChainLoop, verl_dataset
from memory.errors import BadInput
from memory.records import Outcome
from tests.evolve.training.clusters import VerlServer

TOLD = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": False}
SERVED = "verl.experimental.agent_loop.agent_loop"


class Rollout(SimpleNamespace):
    """verl's configuration of rollouts."""

    def get(self, name: str) -> Any:
        return getattr(self, name, None)


@pytest.fixture
def config_file(tmp_path: Path) -> str:
    file = tmp_path / "evolve.toml"
    lines = ('[environment]\nname = "office"\ndeployment = 3', "[policy]\nmax_tokens = 400", "[train]\nlength = 2\n")
    file.write_text("\n".join(lines))
    return str(file)


@pytest.fixture
def outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give verl's class by its fields, where verl is not installed."""
    module = ModuleType(SERVED)
    vars(module)["AgentLoopOutput"] = SimpleNamespace
    monkeypatch.setitem(sys.modules, SERVED, module)


def loop(config_file: str, server: VerlServer) -> ChainLoop:
    """Return the loop as verl makes it: with keywords of its own that are of no use here."""
    rollout = Rollout(prompt_length=50_000, response_length=50_000)
    trainer_config = SimpleNamespace(config=SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout)))
    own: dict[str, Any] = {"name": "evolve", "tokenizer": None, "processor": None, "tools": None}
    return ChainLoop(config_file=config_file, trainer_config=trainer_config, server_manager=server, **own)


def asked(line: dict[str, Any], member: int) -> dict[str, Any]:
    return line | {"uid": "uid", "session_id": member, "global_steps": 1, "raw_prompt": line["prompt"]}


def lines() -> list[dict[str, Any]]:
    return verl_dataset(Config(environment=EnvironmentSection.model_validate({"name": "office", "deployment": 3})))


@pytest.mark.usefixtures("outputs")
async def test_a_member_comes_back_as_its_rows(config_file: str) -> None:
    server = VerlServer()
    found = [await loop(config_file, server).run(TOLD, **asked(line, 0)) for line in lines()[:3]]
    assert {each["session"] for each in server.asked} == {"uid_0"}
    assert all(len(rows) >= 2 for rows in found), "each task of a chain is a row"
    for rows in found:
        assert len({row.reward_score for row in rows}) == 1
        assert all(len(row.response_mask) == len(row.response_ids) == len(row.response_logprobs) for row in rows)
    assert len({rows[-1].reward_score for rows in found}) > 1, "all were paid alike: this shows nothing"
    written = sum(sum(row.response_mask) for rows in found for row in rows)
    assert -0.5 * written == sum(sum(row.response_logprobs) for rows in found for row in rows)
    assert found[-1][-1].extra_fields["max_global_steps"] == len(server.asked)


@pytest.mark.usefixtures("outputs")
async def test_members_differ_and_equal_ones_do_not(config_file: str) -> None:
    server, seeds = VerlServer(), list[set[int]]()
    for member in (0, 0, 1):
        server.asked.clear()
        await loop(config_file, server).run(TOLD, **asked(lines()[0], member))
        seeds.append({each["told"]["seed"] for each in server.asked})
    assert seeds[0] == seeds[1]
    assert not seeds[0] & seeds[2]


@pytest.mark.usefixtures("outputs")
async def test_who_could_not_be_graded_is_left_out(config_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(episode: OfficeEpisode) -> Outcome:
        raise EnvironmentFailure("the office burned down")

    monkeypatch.setattr(OfficeEpisode, "grade", broken)
    assert await loop(config_file, VerlServer()).run(TOLD, **asked(lines()[0], 0)) == []


async def test_what_no_loop_can_do_is_refused(config_file: str) -> None:
    made = loop(config_file, VerlServer())
    with pytest.raises(BadInput, match=r"\['session_id', 'global_steps'\].*use_v1"):
        await made.run(TOLD, chain="ch", uid="uid")
    with pytest.raises(BadInput, match="ch-other"):
        await made.run(TOLD, **asked({"chain": "ch-other", "prompt": []}, 0))


async def test_its_own_class_takes_the_rows(config_file: str) -> None:
    served: Any = pytest.importorskip(SERVED, reason="verl is not installed", exc_type=ImportError)
    rows = await loop(config_file, VerlServer()).run(TOLD, **asked(lines()[0], 0))
    assert all(type(row) is served.AgentLoopOutput for row in rows)
    for row in rows:
        given = row.as_dict()
        assert given["rm_scores"].sum() == pytest.approx(row.reward_score)
        lengths = {len(given[name]) for name in ("responses", "response_mask", "rollout_log_probs", "rm_scores")}
        assert lengths == {len(row.response_ids)}
        assert given["extra_fields"]["reward_extra_info"] == {}
        assert isinstance(given["extra_fields"]["min_global_steps"], int)
