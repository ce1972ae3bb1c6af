"""A model for each role: who is asked what, who pays, and that nobody is made or closed twice.

R1  each role is asked by the model of its section, and by the acting one where it has none
R2  sections that differ in their sampling alone share one object; each object is closed once, also after a failure
R3  a run is resumed with the roles it began with, where they are served today, and pays for nothing twice
R4  calls and tokens are reported by role; the sum is all that was spent
R5  arms of a comparison may differ in one role
R6  a role's section is read, checked and overridden key by key
R7  a limit of money is refused where a model has no price
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from evolve.compare.arms import Given, resolve
from evolve.compare.compare_session import compare
from evolve.compare.plan import ComparisonOptions, make_plan
from evolve.config.file import load_config
from evolve.config.model import Config, ModelSection, PolicySection, RoleSection, TeacherSection
from evolve.errors import ConfigError
from evolve.loop.assembly import open_store
from evolve.loop.controls import WorldCost, estimate
from evolve.loop.report import Report, make_report
from evolve.loop.role_policies import opened
from evolve.loop.runs import RunRecord, load_run, spent, started_with
from evolve.loop.session import aresume, arun
from evolve.workspace.config_check import check_names
from policies.price import Price
from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy
from tests.evolve.command import complaint, evolve, evolve_json
from tests.evolve.loop.test_attempts import judged
from tests.evolve.toy_doors import replies

DOORS = """\
[run]
tasks = 6
batch_size = 3

[environment]
name = "tests.evolve.toy_doors:Doors"

[policy]
name = "tests.evolve.loop.test_roles:player"
model = "actor"

[policy.reflector]
name = "tests.evolve.loop.test_roles:player"
model = "thinker"
temperature = 0.5
max_tokens = 999

[policy.curator]
name = "tests.evolve.loop.test_roles:player"
model = "thinker"

[controls]
no_memory = 0

[memory]
index = "exact"
"""


class Player(ScriptedPolicy):
    """Plays doors in every role, and notes what it was asked for and how often it was closed."""

    def __init__(self, model: str) -> None:
        super().__init__(self.noted, name=model, profile="compact", version="1")
        self.asked: list[tuple[str, SamplingParams]] = []
        self.closed = 0

    def noted(self, messages: Sequence[Message], params: SamplingParams) -> str:
        first = messages[0].content.splitlines()[0]
        self.asked.append((first, params))
        return judged(messages, params) if first == "judge" else replies(messages, params)

    def kinds(self) -> set[str]:
        return {"act" if first.startswith("rules") else first for first, _ in self.asked}

    async def aclose(self) -> None:
        self.closed += 1


MADE: list[Player] = []


def player(section: ModelSection) -> Player:
    """Make the player that the configuration names."""
    MADE.append(Player(section.model))
    return MADE[-1]


def broken(section: ModelSection) -> Player:
    raise ConfigError(f"no such model {section.model!r}")


@pytest.fixture(autouse=True)
def made() -> Iterator[list[Player]]:
    MADE.clear()
    yield MADE
    MADE.clear()


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "evolve.toml").write_text(DOORS)
    return load_config(tmp_path / "evolve.toml")


def report_of(config: Config, run_id: str) -> Report:
    with open_store(config, read_only=True) as store:
        return make_report(store, run_id)


async def test_each_role_is_asked_by_its_own_model_and_counted(config: Config, made: list[Player]) -> None:
    result = await arun(config)
    actor, thinker = made  # two objects for three sections
    assert (actor.kinds(), thinker.kinds()) == ({"act"}, {"reflect", "curate"})
    assert [each.closed for each in made] == [1, 1]
    sampled = {first: (params.temperature, params.max_tokens) for first, params in thinker.asked}
    assert sampled == {"reflect": (0.5, 999), "curate": (0.0, 64)}
    report = report_of(config, result.run_id)
    told = {use.role: (use.policy, use.usage.calls) for use in report.roles}
    asked = [first for first, _ in thinker.asked]
    assert told == {
        "acting": ("actor 1", actor.calls),
        "reflector": ("thinker 1", asked.count("reflect")),
        "curator": ("thinker 1", asked.count("curate")),
    }
    with open_store(config, read_only=True) as store:
        assert spent(store, result.run_id).calls == actor.calls + thinker.calls
    assert [use["role"] for use in evolve_json(config.root, "report")["roles"]] == list(told)


async def test_a_role_without_a_section_is_the_acting_ones(tmp_path: Path, made: list[Player]) -> None:
    (tmp_path / "evolve.toml").write_text(DOORS.partition("[policy.reflector]")[0] + '[memory]\nindex = "exact"\n')
    config = load_config(tmp_path / "evolve.toml")
    result = await arun(config)
    (only,) = made
    assert only.kinds() == {"act", "reflect", "curate"}
    assert {use.role: use.policy for use in report_of(config, result.run_id).roles}["reflector"] == "actor 1"


async def test_the_judge_judges(config: Config, made: list[Player]) -> None:
    own = RoleSection(name="tests.evolve.loop.test_roles:player", model="judge")
    policy = config.policy.model_copy(update={"judge": own})
    run = config.run.model_copy(update={"mode": "frozen", "attempts": 2, "judge": "policy"})
    await arun(config.model_copy(update={"policy": policy, "run": run}))
    assert {each.name: each.kinds() for each in made} == {"actor": {"act"}, "thinker": set(), "judge": {"judge"}}
    said = evolve(config.root, "report")
    assert "nothing was asked as reflector (thinker 1)" in said
    assert "nothing was asked as judge" not in said


async def test_what_was_made_is_closed_when_another_role_cannot_be(config: Config, made: list[Player]) -> None:
    own = RoleSection(name="tests.evolve.loop.test_roles:broken", model="gone")
    section = config.policy.model_copy(update={"teacher": own})
    with pytest.raises(ConfigError, match="no such model 'gone'"):
        async with opened(section, None, None, {}):
            pass
    assert [each.closed for each in made] == [1, 1]


async def test_objects_of_the_caller_are_used_and_left_open(config: Config, made: list[Player]) -> None:
    acting, judge = Player("mine"), Player("my judge")
    async with opened(config.policy, None, acting, {"judge": judge}) as policies:
        assert (policies.acting, policies.judge, policies.teacher) == (acting, judge, acting)
        assert policies.reflector is policies.curator is made[0]
    assert (acting.closed, judge.closed, made[0].closed) == (0, 0, 1)


async def test_a_run_is_resumed_with_its_roles_and_pays_for_nothing_twice(config: Config, made: list[Player]) -> None:
    few = config.model_copy(update={"budget": config.budget.model_copy(update={"calls": 12})})
    stopped = await arun(few)
    assert stopped.status == "stopped"
    plain = config.model_copy(update={"policy": PolicySection()})  # what the file says today does not count
    done = await aresume(plain, stopped.run_id)
    assert (done.status, sum(each.calls for each in made)) == ("done", (await _undisturbed(config)))
    assert {each.name for each in made} == {"actor", "thinker"}
    with open_store(config, read_only=True) as store:
        assert load_run(store, done.run_id).roles == {"reflector": "thinker 1", "curator": "thinker 1"}


async def _undisturbed(config: Config) -> int:
    """Return the calls of the same run in another workspace."""
    memory = config.memory.model_copy(update={"workspace": "other"})
    again = config.model_copy(update={"memory": memory})
    result = await arun(again)
    with open_store(again, read_only=True) as store:
        return int(spent(store, result.run_id).calls)


def test_a_resumed_run_asks_each_role_where_its_server_is_today(tmp_path: Path) -> None:
    def served(host: str, judge: str) -> Config:
        def section(role: str, model: str) -> dict[str, str]:
            return {"name": "openai", "model": model, "base_url": f"http://{role}.{host}/v1"}

        roles = {"reflector": section("reflector", "large"), "judge": section("judge", judge)}
        return Config.model_validate({"root": tmp_path, "policy": {**section("acting", "small"), **roles}})

    began, now = served("then", "stern"), served("now", "mild")
    record = RunRecord(run_id="r", config=began.model_dump(mode="json", exclude={"root"}))
    found = started_with(record, now).policy
    assert (found.base_url, found.roles["reflector"]) == ("http://acting.now/v1", now.policy.reflector)
    assert found.roles["judge"] == began.policy.judge, "another model than it began with"


def test_arms_differ_in_one_role(config: Config, tmp_path: Path, made: list[Player]) -> None:
    given = Given(tmp_path / "evolve.toml")
    arms = [resolve(arm, given) for arm in ("default", "policy.reflector.model=scholar")]
    found = compare(make_plan(arms, ComparisonOptions(controls=False)), tmp_path / "c")
    assert sorted(each.name for each in made) == ["actor", "scholar", "thinker"]
    assert {"reflect"} == next(each for each in made if each.name == "scholar").kinds()
    assert [each.closed for each in made] == [1, 1, 1]
    by = "tests.evolve.loop.test_roles:player"
    assert [life.reflector for life in found.lives] == [
        f"model by {by} {model} / model by {by} thinker" for model in ("thinker", "scholar")
    ]


def test_a_role_is_overridden_key_by_key(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVOLVE_POLICY__REFLECTOR__MODEL", "other")
    found = load_config(tmp_path / "evolve.toml").policy.reflector
    assert found is not None
    assert (found.model, found.max_tokens) == ("other", 999)
    assert found != config.policy.reflector


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[policy.reflector]\nmodel = "x"\n', "[policy.reflector] lacks 'name'"),
        ('[policy.reflector]\nname = "pocket"\nmodle = "x"\n', "unknown key 'modle' in [policy.reflector]; did you"),
        ('[policy.reflector]\nname = "pocket"\nmax_tokens = 0\n', "[policy.reflector] max_tokens = 0 was refused"),
        ('[policy.judgge]\nname = "pocket"\n', "unknown key 'judgge' in [policy]; did you mean 'judge'?"),
    ],
)
def test_a_mistake_in_a_role_is_named_with_its_fix(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "evolve.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "evolve.toml")
    assert said in str(caught.value)


def test_names_of_roles_are_checked() -> None:
    judge, teacher = RoleSection(name="opnai"), TeacherSection(name="scripted", model="no:thing")
    with pytest.raises(ConfigError) as caught:
        check_names(Config(policy=PolicySection(judge=judge, teacher=teacher)))
    assert "no policy 'opnai' (did you mean 'openai'?)" in str(caught.value)
    assert "no:thing" in str(caught.value)


PRICED = "price = {prompt = 1.0}"
DEAR = '[policy]\nname = "langchain"\nmodel = "fake:fake"\n{}\n[policy.judge]\nname = "openai"\n{}\n'


@pytest.mark.parametrize(
    ("acting", "judge", "named"),
    [("", "", "policy.price and policy.judge.price"), (PRICED, "", "set policy.judge.price"), (PRICED, PRICED, "")],
)
def test_a_limit_of_money_needs_the_price_of_every_model(tmp_path: Path, acting: str, judge: str, named: str) -> None:
    (tmp_path / "evolve.toml").write_text(DEAR.format(acting, judge) + "[budget]\ncost_usd = 5.0\n")
    if not named:
        assert "is valid" in evolve(tmp_path, "config", "check")
        return
    said = complaint(tmp_path, "config", "check", code=2)
    assert "budget.cost_usd = 5 limits nothing" in said
    assert named in said


async def test_a_run_with_money_to_spend_and_no_price_asks_nobody(config: Config, made: list[Player]) -> None:
    own = RoleSection(name="openai", model="judge", base_url="http://127.0.0.1:9/v1")
    policy, budget = config.policy.model_copy(update={"judge": own}), config.budget.model_copy(update={"cost_usd": 5.0})
    with pytest.raises(ConfigError, match=r"budget\.cost_usd = 5 .* set policy\.judge\.price"):
        await arun(config.model_copy(update={"policy": policy, "budget": budget}))
    assert [each.calls for each in made] == [0, 0]


def test_generations_adapt_the_acting_model_and_no_other(tmp_path: Path) -> None:
    from evolve.generations.workspace_registry import home

    acting = PolicySection(name="local", model="base")
    assert home(RoleSection(name="local", model="base"), acting, tmp_path) == tmp_path
    assert home(RoleSection(name="local", model="large"), acting, tmp_path) is None
    with pytest.raises(ConfigError, match="use name = 'openai'"):
        home(RoleSection(name="served", model="large"), acting, tmp_path)


def test_each_role_is_priced_by_its_own() -> None:
    dear = RoleSection(name="openai", price=Price(completion=1000.0))
    world = WorldCost(tokens=0, max_steps=1)
    cost = estimate(Config(policy=PolicySection(reflector=dear)), 10, 0.0, world).cost_usd
    assert cost == pytest.approx(10 * 512 * 1000 / 1e6)  # ten tasks, each reflected on once; to act is free


def test_a_journal_of_an_earlier_version_has_no_roles(tmp_path: Path) -> None:
    config = Config.model_validate({"root": tmp_path, "memory": {"index": "exact"}})
    with open_store(config) as store:
        store.put_reply("k", {"reply": {"usage": {"calls": 2}}, "sha256": ""}, run_id="r")
        assert spent(store, "r").calls == 2
