"""The composition root: the only place where names in the configuration become objects.

A name is one that ships here, or `module:attribute` of the user's own; a misspelt one lists what exists. Heavy packages
are imported by the branch that needs them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

from evolve import environments, gates
from evolve.config.model import Config, ModelSection
from evolve.config.tables import FROM_ROOT, Section, nearest, read
from evolve.errors import ConfigError
from evolve.protocols import Environment
from evolve.registry import added, choose, load_object, loaded, member, members
from evolve.usercode import broke_contract
from memory import embedders, kinds
from memory.journal import Journal
from memory.protocols import Embedder, Gate
from memory.records import Reflection, Trust
from memory.store import Store
from playbooks.protocols import Curator, Reflector
from policies.protocols import Policy
from policies.roles import Policies

DATABASE = "evolve.db"
"""File of a workspace that is on no server."""

if TYPE_CHECKING:
    from evolve.gates.context import Bench, GateContext


def make_environment(config: Config) -> Environment:
    """Return the configured environment, built with the section's own keys."""
    name = config.environment.name
    shipped = {each: partial(_shipped_environment, each, config) for each in shipped_environments()}
    return choose("environment", name, shipped, lambda own: _built(own, name, config))


def shipped_environments() -> list[str]:
    """Return the names of the environments that ship here: files of `evolve/environments`."""
    return members(environments)


def environment_options(name: str) -> type[BaseModel] | None:
    """Return the class of the keys that `[environment]` takes for a shipped environment; None where it has none."""
    return _options_of(member(environments, name))


def _shipped_environment(name: str, config: Config) -> Environment:
    return _built(member(environments, name), name, config)


def check_environment_options(config: Config) -> BaseModel | None:
    """Return the own keys of an environment that ships here; None where it has none, or is the user's.

    Raises `ConfigError` for one that it does not take.
    """
    name = config.environment.name
    model = environment_options(name) if name in shipped_environments() else None
    return model and read(model, config.environment.options, "environment")


def check_skills(config: Config, environment: Environment) -> None:
    """Raise `ConfigError` where skills are on and the environment's actions are no code that could call them."""
    if config.skills.enabled and environment.action_format != "code":
        raise ConfigError(
            f"[skills] enabled needs an environment whose actions are code; those of {environment.name!r} are "
            f"{environment.action_format}: set skills.enabled = false"
        )


def _built(make: Callable[..., Environment], name: str, config: Config) -> Environment:
    """Return the environment that a class or function makes of the section's own keys.

    Where its one parameter is a model of pydantic's, the keys are that model's fields; else they are its parameters.
    Raises `ConfigError` for keys that it does not take.
    """
    options, model = config.environment.options, _options_of(make)
    if model is None:
        signature = inspect.signature(make)
        try:
            signature.bind(**options)
        except TypeError as wrong:
            raise ConfigError(
                f"[environment] {wrong}; the section's own keys go to {name}{signature}, and it has {sorted(options)}"
            ) from wrong
        return make(**options)
    return make(read(model, options | _rooted(model, config), "environment"))


def rooted(config: Config) -> dict[str, str]:
    """Return the paths among the environment's own keys, absolute: so they mean the same from another folder."""
    name = config.environment.name
    shipped = name in shipped_environments()
    model = environment_options(name) if shipped else _options_of(load_object(name)) if ":" in name else None
    return {key: str(Path(path).resolve()) for key, path in _rooted(model, config).items()} if model else {}


def _rooted(model: type[BaseModel], config: Config) -> dict[str, str]:
    named = (key for key, field in model.model_fields.items() if FROM_ROOT in field.metadata)
    paths = {key: config.environment.options.get(key, model.model_fields[key].default) for key in named}
    return {key: str(config.root / path) for key, path in paths.items() if isinstance(path, str)}


def _options_of(make: Callable[..., Any], beside: int = 0) -> type[BaseModel] | None:
    """Return the pydantic model that a class or function takes as its one parameter beside so many, if it does."""
    try:
        parameters = list(inspect.signature(make, eval_str=True).parameters.values())[beside:]
    except NameError:  # an annotation that is there for type checkers alone
        return None
    needed = [each for each in parameters if each.default is each.empty or len(parameters) == 1]
    taken = needed[0].annotation if len(needed) == 1 else None
    choices = (taken, *get_args(taken))  # `Model` and `Model | None`
    return next((each for each in choices if inspect.isclass(each) and issubclass(each, BaseModel)), None)


POLICY_PARTS = ("name", "version", "profile", "supports_schema", "generate", "count_tokens", "aclose")
"""What a policy has (`policies.protocols.Policy`)."""


def make_policy(section: ModelSection, workspace: Path | None = None) -> Policy:
    """Return the configured policy. `local` and `pocket` load their weights, with the workspace's live generation."""
    return choose("policy", section.name, shipped_policies(section, workspace), lambda own: _own_policy(own, section))


def _own_policy(make: Callable[[ModelSection], Any], section: ModelSection) -> Policy:
    """Return the policy of a function of the user's. Raises `UserCodeError` where it returns none."""
    made = make(section)
    if lacks := [part for part in POLICY_PARTS if not hasattr(made, part)]:
        raise broke_contract(f"policy {section.name!r}", make, made, f"a policy; it lacks {', '.join(lacks)}")
    return made


def shipped_policies(section: ModelSection, workspace: Path | None = None) -> Mapping[str, Callable[[], Policy]]:
    """Return name -> builder."""
    return {
        "pocket": lambda: _in_process(section, workspace),
        "local": lambda: _in_process(section, workspace),
        "served": lambda: _served(section, workspace),
        "openai": lambda: _openai(section, workspace),
        "langchain": lambda: _langchain(section),
        "scripted": lambda: _scripted(section),
    }


def _in_process(section: ModelSection, workspace: Path | None) -> Policy:
    from evolve.generations.workspace_registry import in_process

    return in_process(section, workspace)


def _served(section: ModelSection, workspace: Path | None) -> Policy:
    from evolve.generations.workspace_registry import served

    return served(section, workspace)


def _scripted(section: ModelSection) -> Policy:
    from policies.scripted import ScriptedPolicy

    return ScriptedPolicy(load_object(section.model))


def _openai(section: ModelSection, workspace: Path | None) -> Policy:
    from policies.openai_server import OpenAIPolicy, ServerOptions
    from policies.openai_transport import Connection
    from policies.server_settings import ServerAddress

    server = Connection(**section.model_dump(include=set(ServerAddress.model_fields)))
    options = ServerOptions(profile=section.profile, price=section.price, special_tokens=section.special_tokens)
    if section.weights:
        from evolve.generations.llama_cpp import answering

        options = options.model_copy(update={"adapted": answering(section, workspace)})
    return OpenAIPolicy(server, section.model, options=options)


def _langchain(section: ModelSection) -> Policy:
    from policies.langchain import LangChainOptions, LangChainPolicy

    return LangChainPolicy(section.model, options=LangChainOptions(profile=section.profile, price=section.price))


def make_embedder(config: Config) -> Embedder:
    """Return the configured embedder. `sentence:<path or hub name>` reads local files only."""
    name, model = named_embedder(config)
    shipped = dict.fromkeys(shipped_embedders(), lambda: _embedder(name, member(embedders, name), model))
    return choose("embedder", name, shipped, lambda own: own() if ":" in name else _embedder(name, own, model))


def shipped_embedders() -> list[str]:
    """Return the names of the embedders that ship here: files of `memory/embedders`."""
    return members(embedders)


def named_embedder(config: Config) -> tuple[str, str]:
    """Return the name of the configured embedder, and the model behind it; `module:attribute` is a name as a whole."""
    name, _, model = config.memory.embedder.partition(":")
    known = name in shipped_embedders() or name in added("embedder")
    return (name, model) if known else (config.memory.embedder, "")


def _embedder(name: str, make: Callable[..., Embedder], model: str) -> Embedder:
    if takes_model(make) and not model:
        raise ConfigError(f"embedder {name!r} needs the model that it loads; write '{name}:<path or hub name>'")
    if model and not takes_model(make):
        raise ConfigError(f"embedder {name!r} loads no model, got {model!r}; write '{name}'")
    return make(model) if model else make()


def takes_model(make: Callable[..., Embedder]) -> bool:
    """Tell whether an embedder is named with the model that it loads: `sentence:<path or hub name>`."""
    return any(each.default is each.empty for each in inspect.signature(make).parameters.values())


def open_store(
    config: Config, count_tokens: Callable[[str], int] | None = None, *, read_only: bool = False, owner: bool = True
) -> Store:
    """Return the workspace's store; its folder is made when missing. Raises as `Store.open`."""
    if not read_only:
        config.workspace.mkdir(parents=True, exist_ok=True)
    register_kinds()
    embedder = make_embedder(config)
    more: dict[str, Any] = {"count_tokens": count_tokens} if count_tokens else {}
    journal = Journal(config.workspace / DATABASE, read_only=read_only, database=config.memory.database)
    return Store.over(journal, embedder=embedder, index=config.memory.index, owner=owner, **more)


def is_there(config: Config) -> bool:
    """Tell whether a workspace was ever written to; one on a server says so itself when it is opened."""
    file = config.workspace / DATABASE
    return bool(config.memory.database) or (file.is_file() and file.stat().st_size > 0)


def register_kinds() -> None:
    """Make every kind of knowledge known to the memory floor: those that ship here and those of other packages."""
    from memory.stored_item import StoredItem
    from playbooks import kinds as folder
    from skills.record import Skill

    for payload in (*(member(folder, name) for name in members(folder)), Skill, StoredItem, *loaded("kind").values()):
        kinds.register(payload)


def make_reflector(config: Config, policy: Policy) -> Reflector:
    """Return the configured reflector; `model` asks `policy`, that of the reflecting role."""
    return choose("reflector", config.playbook.reflector, shipped_reflectors(policy), lambda own: own(policy))


def shipped_reflectors(policy: Policy) -> Mapping[str, Callable[[], Reflector]]:
    """Return name -> builder."""
    from playbooks.methods.agentdevel import SymptomReflector
    from playbooks.methods.evolver import EvolverReflector
    from playbooks.methods.reasoningbank import ReasoningBankReflector
    from playbooks.reflector import ModelReflector
    from playbooks.rules import RulesReflector
    from playbooks.silent import SilentReflector

    return {
        "model": lambda: ModelReflector(policy),
        "rules": RulesReflector,
        "none": SilentReflector,
        "reasoningbank": lambda: ReasoningBankReflector(policy),
        "evolver": lambda: EvolverReflector(policy),
        "symptoms": lambda: SymptomReflector(policy),
    }


def make_curator(
    config: Config,
    policies: Policies,
    keep: Callable[[Reflection], object],
    store: Store | None = None,
    world: Environment | None = None,
) -> Curator:
    """Return the configured curator; `keep` stores lessons whose curation could not be parsed.

    It asks the curator of `policies`, the notebook also their judge, `atlas` their teacher. Those that read episodes or
    embed texts need the `store`, one that runs what it writes the `world`.
    """
    from playbooks.several import SeveralCurators

    policy = policies.curator
    known = shipped_curators(config, policies, keep, store, world)
    names = config.playbook.curator.split("+")
    members: list[Curator] = [choose("curator", name, known, lambda own: own(policy)) for name in names]
    return members[0] if len(members) == 1 else SeveralCurators(members)


def shipped_curators(
    config: Config,
    policies: Policies,
    keep: Callable[[Reflection], object],
    store: Store | None = None,
    world: Environment | None = None,
) -> Mapping[str, Callable[[], Curator]]:
    """Return name -> builder."""
    from evolve.loop import methods
    from evolve.loop.methods import make_distiller, make_notebook
    from playbooks.curator import DirectCurator, ModelCurator

    trust = Trust.SELF_JUDGED if config.run.label_free else Trust.VERIFIED
    policy = policies.curator
    return {
        "model": lambda: ModelCurator(policy, trust=trust, keep=keep),
        "direct": lambda: DirectCurator(trust=trust),
        "notebook": lambda: make_notebook(config, policies, keep, store),
        "distill": lambda: make_distiller(config, policy, keep, store, lambda: world or make_environment(config)),
        **methods.curators(config, policies, keep, store),
    }


def make_gates(
    config: Config,
    bench: Bench | None = None,
    own: tuple[Gate, ...] | None = None,
    *,
    tasks: Callable[[], Iterable[str]] = tuple,
) -> tuple[Gate, ...]:
    """Return the configured gates (or the caller's `own`) in order, with a person last where `review` is named.

    Those that run tasks need a `bench`; without one `default` names none. `tasks` returns the instructions that were
    given so far where no bench knows the stream. Raises as `GateContext.bench_of`, and
    `ConfigError` for a gate after `review`.
    """
    from evolve.gates.review import ReviewGate

    chosen = own if own is not None else _configured_gates(config, bench, tasks)
    first = next((at for at, gate in enumerate(chosen) if isinstance(gate, ReviewGate)), len(chosen))
    if first < len(chosen) - 1:
        raise ConfigError(f"gate {chosen[first + 1].name!r} comes after 'review' and sees nothing; put 'review' last")
    asked = ReviewGate.name in config.gate.names
    return (*chosen, ReviewGate()) if asked and first == len(chosen) else chosen


def _configured_gates(config: Config, bench: Bench | None, tasks: Callable[[], Iterable[str]]) -> tuple[Gate, ...]:
    from evolve.gates.context import GateContext
    from evolve.gates.coverage import exercised
    from evolve.loop.live import gates_of

    check_gate_options(config)
    context = GateContext(config, bench, tasks)
    known = {each: partial(shipped_gate, each, context) for each in shipped_gates()}
    names = gates_of(config, bench.evaluator.environment if bench else None)
    made: list[Gate] = [choose("gate", name, known, lambda own: own(config.gate)) for name in names]
    return exercised(made, bench.evaluator.environment, bench.evaluator.trials) if bench else tuple(made)


def shipped_gates() -> list[str]:
    """Return the names of the gates that ship here: files of `evolve/gates`. `default` stands for several of them."""
    return members(gates)


def gate_options(name: str) -> type[BaseModel] | None:
    """Return the class of the keys of `[gate.<name>]` for a shipped gate; None where it has none."""
    return _options_of(member(gates, name), beside=1)


def check_gate_options(config: Config) -> None:
    """Raise `ConfigError` for a table in `[gate]` of no gate, and for an option that its gate does not take.

    What a gate of the user's own reads from the section, it checks itself.
    """
    for name in config.gate.options:
        if name in shipped_gates():
            config.gate.of(name, gate_options(name) or Section)
        elif name not in config.gate.names:
            raise ConfigError(f"unknown table [gate.{name}]{nearest(name, shipped_gates())}")


def shipped_gate(name: str, context: GateContext) -> Gate:
    """Return a gate that ships here, made with the options that `[gate]` has for it."""
    make, options = member(gates, name), gate_options(name)
    made: Gate = make(context, context.config.gate.of(name, options)) if options else make(context)
    return made


def is_free(policy: Policy, section: ModelSection) -> bool:
    """Return True when control episodes cost nothing but time: computed in this process, and no price is configured."""
    return bool(getattr(policy, "in_process", False)) and section.price is None
