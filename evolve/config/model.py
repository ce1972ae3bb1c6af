"""The whole configuration: one `evolve.toml`, found by walking up, frozen, every key explained.

Precedence: what the caller passes, then `EVOLVE_<SECTION>__<KEY>` variables, then the file, then the preset that one of
them names, then the defaults here. An unknown key is refused and the nearest known one is named. Secrets never stand in
the file: `api_key_env` names the variable that holds one, and a value that looks like one is refused. Names
(`policy.name`, `environment.name` ...) become objects in `evolve.loop.assembly` and nowhere else. Reading the file and
the variables is `evolve.config.file`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from evolve.config.preset import AppliedPreset, find_preset, overlay
from evolve.config.sections import (
    BudgetSection,
    ControlsSection,
    ExemplarsSection,
    ForgetSection,
    LogSection,
    SkillsSection,
    TelemetrySection,
)
from evolve.config.tables import M, OpenSection, Section, flat, nearest, read
from evolve.config.training import TrainSection
from memory.content import holds_secret
from memory.index_address import PORTS, parse_address
from memory.index_kinds import index_kinds, shipped_kinds
from memory.records import Trust
from memory.redact import without_password
from playbooks.notebook.note_curator import NotebookSettings
from policies.price import Price
from policies.roles import ROLES, Role
from policies.server_settings import ServerSettings
from skills.distill import DistillSettings

Mode = Literal["online", "offline", "frozen", "quarantine"]
"""What a run does with its tasks."""


class RunSection(Section):
    """`[run]`: what is done, in which order."""

    name: str = Field(default="", max_length=200)
    """Name of the run in lists and reports; it decides nothing."""
    tags: tuple[str, ...] = ()
    """Words that runs are found by in lists, likewise."""
    mode: Mode = "online"
    """`online`: predict, then learn. `offline`: epochs, checked on dev. `frozen`: evaluate. `quarantine`: judge it."""
    split: str = "train"
    """Split whose tasks are worked through (online, offline)."""
    eval_splits: tuple[str, ...] = ("test_normal",)
    """Splits that a frozen run evaluates."""
    snapshot: str | None = None
    """Snapshot that a frozen run evaluates (its id, from `evolve playbook log`); none = what is known now."""
    dev_split: str = "dev"
    """Split whose tasks select: gates that run tasks use them, and so do offline epochs and candidates of training.
    Nothing is written from them."""
    tasks: int | None = Field(default=None, ge=1)
    """How many tasks of the split; none = all."""
    skip: int = Field(default=0, ge=0)
    """How many of its first tasks are passed over (online, offline)."""
    batch_size: int = Field(default=4, ge=1)
    """Tasks that see the same knowledge. The result depends on it, and never on `concurrency`."""
    concurrency: int = Field(default=4, ge=1)
    """Episodes, and reflections, that run at the same time."""
    executor: Literal["local", "ray"] = "local"
    """Where episodes are done, those of gates and trainings too: in this process, or by workers of a Ray cluster."""
    workers: int | None = Field(default=None, ge=1)
    """Processes of the cluster that do them; none = one for each processor."""
    epochs: int = Field(default=1, ge=1)
    """Passes over the tasks (offline)."""
    seed: int = 0
    """Everything random is derived from it, by task and step."""
    shuffle: bool = False
    """Draw the order of an online stream from the seed, instead of keeping the environment's; offline always does."""
    label_free: bool = False
    """Learn without reading any outcome: from the environment's answers alone."""
    judge: Literal["none", "policy", "agreement"] = "none"
    """Who says what succeeded where nobody grades. `policy` judges its own episodes: label-free, to credit the rules it
    was shown; with several attempts, to choose the one to answer with. `agreement` (with `attempts` of 3 or more, in an
    environment that has `answer`): all attempts are made, and those are right that gave the answer of at least half;
    frozen runs answer with the one that was given most often."""
    attempts: int = Field(default=1, ge=1)
    """Most attempts at a task. Runs that learn try a failed task again until it is solved; figures count the first.
    Frozen runs: from 2 on pass@k is measured with and without notes, best-of-n, and retry."""
    attempt_temperature: float = Field(default=0.8, gt=0)
    """Sampling temperature of all but the first attempt (runs that learn)."""

    @model_validator(mode="after")
    def _attempts_fit(self) -> RunSection:
        learns = self.mode in ("online", "offline") and self.label_free
        if learns and self.judge == "agreement" and self.attempts < 3:
            raise ValueError(
                f"run.judge = 'agreement' compares attempts: set run.attempts to 3 or more, got {self.attempts}"
            )
        return self


class ModelSection(ServerSettings, Section):
    """Which model, and how it is reached: what `[policy]` and its roles have in common."""

    name: str = "pocket"
    """`pocket`, `local`, `served`, `openai`, `langchain`, `scripted`, or `module:function` taking this section. The
    first three answer with the workspace's live generation (`evolve policy list`), `served` from a vLLM server, and so
    does `openai` with `weights`, from llama.cpp."""
    model: str = ""
    """Model name, path (`served`: of its base; none = pocket), `provider:name` for langchain, or `module:function`."""
    adapter: str | None = None
    """Of `local`, `pocket`, `served` and `openai` with weights: a generation of this workspace (`evolve policy list`;
    `policy-v0` is the base) in place of the live one, or, but for `served`, the directory of an adapter. A training
    takes the live one alone."""
    profile: Literal["full", "compact"] = "full"
    """Prompts of `openai` and `langchain` models. A real model solves more with `full` ones (25.0 against 16.5 % of
    ACE's Formula, docs/LOG.md); `compact` is for a served pocket model, which knows no others."""
    price: Price | None = None
    """US dollars per million tokens. Set for the acting model, no control episodes are done unless asked for."""

    @model_validator(mode="after")
    def _for_served(self) -> ModelSection:
        stray = [key for key in ("slots", "replicas") if getattr(self, key)]
        if stray and self.name != "served":
            raise ValueError(f"{stray[0]!r} is for name = 'served', got {self.name!r}; take it out")
        return self

    @property
    def identity(self) -> str:
        """Return what decides the policy object: sections that differ in their sampling alone share one."""
        return self.model_dump_json(include=set(ModelSection.model_fields))


class RoleSection(ModelSection):
    """`[policy.reflector]`, `[policy.curator]`, `[policy.judge]`, `[policy.teacher]`: another model for one role.

    A section of its own, which takes over no key of `[policy]`. A role without one is the acting model's.
    """

    name: str = Field()
    """As in `[policy]`. Generations of the workspace answer in a role only where its model is that of `[policy]`."""
    temperature: float | None = Field(default=None, ge=0)
    """Sampling temperature; none = as the role asks, which is greedy."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Most tokens of an answer, thinking included; none = as the role asks."""


class TeacherSection(RoleSection):
    """`[policy.teacher]`: the model that advises, also inside episodes where that is set (full prompts), and that may
    make further attempts."""

    name: str = ""
    """As in `[policy.reflector]`; empty = the acting model advises itself."""
    plan_review: bool = False
    """The agent's first reply is its plan, and the teacher answers it."""
    retry: bool = False
    """Once an episode the teacher says what to do instead of an action that failed. That step is given back."""
    attempts: bool = False
    """The teacher makes the further attempts (`run.attempts`, runs that learn) at what the agent failed; with
    `exemplars.enabled` its successes become exemplars. It has to be another model, with prompts of the agent's
    profile."""

    @model_validator(mode="after")
    def _named(self) -> TeacherSection:
        fields = type(self).model_fields
        stray = [key for key in RoleSection.model_fields if getattr(self, key) != fields[key].default]
        if not self.name and stray:
            raise ValueError(f"it lacks 'name', and has {stray[0]!r}; it takes no key of [policy]")
        return self


class PolicySection(ModelSection):
    """`[policy]`: who acts, and who reflects, curates, judges and teaches where no section below names another."""

    temperature: float = Field(default=0.0, ge=0)
    """Sampling temperature of the acting role; the others are greedy."""
    max_tokens: int = Field(default=512, ge=1)
    """Most tokens of one action."""
    reflector: RoleSection | None = None
    """`[policy.reflector]`: says what an episode teaches."""
    curator: RoleSection | None = None
    """`[policy.curator]`: decides how lessons change what is known; writes notes and skills."""
    judge: RoleSection | None = None
    """`[policy.judge]`: says whether an episode succeeded where nobody grades (`run.judge`, curator `notebook`)."""
    teacher: TeacherSection = TeacherSection()
    """`[policy.teacher]`: advises inside episodes, makes further attempts, and is what curator `atlas` asks."""

    @property
    def roles(self) -> dict[Role, RoleSection]:
        """Return the roles that have a section of their own."""
        return {role: section for role in ROLES if (section := getattr(self, role)) and section.name}


class EnvironmentSection(OpenSection):
    """`[environment]`: the world. Keys beside these are the environment's own."""

    name: str = "office"
    """A file of `evolve/environments`, or `module:Class`."""
    max_steps: int | None = Field(default=None, ge=1)
    """Actions an episode may take; none = as the environment says, else 12."""
    observation_chars: int = Field(default=20_000, ge=200)
    """Most characters of an observation that the agent reads; a longer one says how much of its middle was left out."""
    history_chars: int = Field(default=200_000, ge=1_000)
    """Most characters of an episode's conversation; above it the oldest observations are left out, and that is said."""
    tasks_file: str | None = None
    """JSON Lines of tasks that replace the environment's own."""


class MemorySection(Section):
    """`[memory]`: where knowledge lives and how it is found."""

    workspace: str = ".evolve"
    """State directory, relative to the file's folder."""
    database: str = ""
    """PostgreSQL server that holds knowledge and journal, for several machines: `postgresql://user@host:5432/name`, or
    `service=name`; empty = a SQLite file in the workspace. Passwords stand in PGPASSWORD or `~/.pgpass`."""
    namespace: str = "default"
    """Namespace that is read and written."""
    embedder: str = "hashing"
    """`hashing` (sees spelling), `wordllama` (meaning, from word vectors that an extra brings), `sentence:<path or hub
    name>` (meaning, slower), or `module:function`."""
    index: str = "chroma"
    """Vector index of live recall: `chroma` (a folder of one machine), `exact` (none: all vectors are compared), or on
    a server that several machines ask: `pgvector` (in `memory.database`), `chroma-http:http://HOST:8000/NAME` or
    `qdrant:http://HOST:6333/NAME`, where NAME is this workspace's own. Small collections and frozen evaluations are
    always searched exactly."""
    recall_k: int = Field(default=24, ge=0)
    """Most records recalled for a task."""
    kinds: tuple[str, ...] = ()
    """Kinds of records that are recalled (`bullet`, `note`); empty = all."""

    @field_validator("index")
    @classmethod
    def _known(cls, named: str) -> str:
        kind, _, address = named.partition(":")
        if kind not in shipped_kinds() and kind not in (kinds := index_kinds()):
            raise ValueError(f"there is no index {kind!r}; there are {', '.join(kinds)}")
        without_password(address, "a key of Qdrant is in QDRANT_API_KEY")
        if kind in PORTS:
            parse_address(kind, address)
        elif address and kind in shipped_kinds():
            raise ValueError(f"index {kind!r} takes no address; write {kind!r}")
        return named

    @field_validator("database")
    @classmethod
    def _without_password(cls, address: str) -> str:
        return without_password(address, "write it to PGPASSWORD or ~/.pgpass")


class PlaybookSection(Section):
    """`[playbook]`: how lessons are made and shown."""

    enabled: bool = True
    """False = no knowledge is recalled and none is learned (the no-memory baseline)."""
    reflector: str = "model"
    """`model`, `rules`, `none`, that of a method (`reasoningbank`, `evolver`, `symptoms`), or `module:function`."""
    curator: str = "model"
    """`model`, `direct`, `notebook` (mistake notes by cluster), `distill` (skills from successes), that of a method
    (`append`, `evolver`, `cheatsheet`, `atlas`, `release`, `regimes`, `batch`), or `module:function`; joined by `+`
    they propose side by side."""
    reflect_on: Literal["all", "failures"] = "all"
    """Which episodes are reflected on (label-free: always all)."""
    search_k: int = Field(default=0, ge=0)
    """Most records that one search of the agent finds while it acts (full prompts only); 0 = it cannot search."""
    token_budget: int = Field(default=1024, ge=0)
    """Most tokens of knowledge in a prompt: rules, notes and exemplars together."""
    compact_every: int = Field(default=50, ge=1)
    """Tasks between two changes of the core bullets."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Hard token budget of the whole playbook; the least useful bullets are retired above it."""
    notebook: NotebookSettings = NotebookSettings()
    """`[playbook.notebook]`: how curator `notebook` turns failures into mistake notes."""
    distill: DistillSettings = DistillSettings()
    """`[playbook.distill]`: how curator `distill` writes skills."""


class GateSection(OpenSection):
    """`[gate]`: what a learned change must pass. Options of a gate stand in a table of its name."""

    names: tuple[str, ...] = ("static",)
    """In order: `static`; `batch_screen`, `canary`, `held_out`, `utility` (they run tasks); `exemplars` (together, by
    running tasks); `replay` (a skill's own task); `online_ab` (live streams); `review` (a person); `none`;
    `module:function`; `default` (live: static, online_ab; else static, exemplars where they are on, batch_screen,
    held_out and, where there are such tasks, canary)."""
    calls_ratio: float = Field(default=2.0, gt=0)
    """Most model calls of the gates, as a multiple of the stream's so far; a change that must wait for some waits."""
    calls_advance: int | Literal["auto"] = "auto"
    """Calls that the gates may make beside those that `calls_ratio` allows, so that a short run can measure its first
    lessons. `auto` = 1500 where calls cost nothing but time (`pocket`, `local`, `scripted`, no price), else 0."""
    trust: Trust = Trust.SELF_JUDGED
    """Least trust that is recalled unmeasured; what is below waits for a gate that runs tasks, or for an operator."""

    def of(self, gate: str, options: type[M]) -> M:
        """Return the options of a gate, `[gate.<name>]`, as its class says them. Raises `ConfigError`."""
        return read(options, self.options.get(gate, {}), f"gate.{gate}")

    @model_validator(mode="after")
    def _tables(self) -> GateSection:
        stray = [key for key, value in self.options.items() if not isinstance(value, Mapping)]
        if stray:
            hint = nearest(stray[0], type(self).model_fields)
            raise ValueError(f"unknown key {stray[0]!r}{hint}; options of a gate stand in [gate.<name>]")
        return self


class Config(BaseModel):
    """Everything that decides a run. `load_config` reads the file; `Config(run=RunSection(...))` makes one in code."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, data: Any) -> Any:
        name = data.get("preset") if isinstance(data, dict) else None
        return data if name is None else overlay(cls, find_preset(name), data)

    preset: str | None = None
    """Published method whose values apply where no key is given (`evolve presets list`); stands above all sections."""
    run: RunSection = RunSection()
    policy: PolicySection = PolicySection()
    environment: EnvironmentSection = EnvironmentSection()
    memory: MemorySection = MemorySection()
    playbook: PlaybookSection = PlaybookSection()
    skills: SkillsSection = SkillsSection()
    exemplars: ExemplarsSection = ExemplarsSection()
    gate: GateSection = GateSection()
    forget: ForgetSection = ForgetSection()
    budget: BudgetSection = BudgetSection()
    controls: ControlsSection = ControlsSection()
    train: TrainSection = TrainSection()
    telemetry: TelemetrySection = TelemetrySection()
    log: LogSection = LogSection()

    root: Path = Path()
    """Folder of `evolve.toml`; set by whoever loads the file. Relative paths start there."""

    @model_validator(mode="after")
    def _without_secrets(self) -> Config:
        for path, value in flat(self.model_dump(mode="json", exclude={"root"}, exclude_defaults=True)):
            if holds_secret(path.rpartition(".")[2], value):
                raise ValueError(
                    f"{path} holds a secret, and settings are kept with every run; put it in an environment variable, "
                    "and let whoever needs it read it there"
                )
        return self

    @property
    def workspace(self) -> Path:
        """Return the state directory."""
        return self.root / self.memory.workspace

    @property
    def digest(self) -> str:
        """Return a short hash of what decides results: not how fast, how much, where and watched by whom."""
        whole = dict.fromkeys(("root", "preset", "budget", "telemetry", "log"), True)
        roles = {role: {"patience_s"} for role in ROLES}
        rest = self.model_dump(
            mode="json",
            exclude={
                **whole,
                "run": {"concurrency", "executor", "workers", "name", "tags"},
                "memory": {"workspace", "database"},
                "policy": {"slots": True, "replicas": True, "patience_s": True, **roles},
                "train": {"tracker"},
            },
        )
        rest["memory"]["index"] = rest["memory"]["index"].partition(":")[0]
        return hashlib.sha256(repr(sorted(rest.items())).encode()).hexdigest()[:16]

    @property
    def applied_preset(self) -> AppliedPreset | None:
        """Return what the preset set and what it did not; None without a preset."""
        if self.preset is None:
            return None
        dump, taken, overridden = self.model_dump(mode="json"), dict[str, Any](), dict[str, Any]()
        for path, value in find_preset(self.preset).keys().items():
            mine = reduce(lambda table, key: table[key], path.split("."), dump)
            (taken if mine == value else overridden)[path] = mine
        return AppliedPreset(name=self.preset, taken=taken, overridden=overridden)
