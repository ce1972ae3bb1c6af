"""Check every name of a configuration before anything is built from it: `evolve config check`.

A name of the user's own is imported, since nothing else tells whether it is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from evolve.config.model import Config
from evolve.config.training import MEMBERS
from evolve.errors import ConfigError
from evolve.gates.stack import DEFAULT
from evolve.loop import assembly as app
from evolve.loop.role_policies import require_prices
from evolve.registry import check_name


def check_names(config: Config, *, train: bool = True) -> None:
    """Raise `ConfigError` for every name that stands for nothing, each with the nearest that does; then for options
    that do not fit what is named, and for a limit of money where no price is.

    Those of `[train]` only with `train`: an object of the user's there may need torch.
    """
    wrong: list[str] = []
    for what, name, known in (*_named(config), *(_trained(config) if train else ())):
        try:
            check_name(what, name, known)
        except ConfigError as unknown:
            wrong.append(str(unknown))
    if wrong:
        raise ConfigError("; ".join(wrong))
    app.check_gate_options(config)
    app.check_environment_options(config)
    require_prices(config)
    for key in MEMBERS if train else ():
        if getattr(config.train, key).options:
            config.train.member(key)


def in_force(config: Config) -> dict[str, Any]:
    """Return every value in force, section by section, with those of the gates that are named and the environment."""
    data = config.model_dump(mode="json")
    for name in {*config.gate.names, *config.gate.options} & {*app.shipped_gates()}:
        if options := app.gate_options(name):
            data["gate"][name] = config.gate.of(name, options).model_dump(mode="json")
    model = app.check_environment_options(config)
    return data | {"environment": {**(model.model_dump(mode="json") if model else {}), **data["environment"]}}


def _named(config: Config) -> Iterator[tuple[str, str, Iterable[str]]]:
    """Yield what a name is for, the name, and what it may be."""
    policy, world = config.policy, config.environment
    models = (policy, *policy.roles.values())
    chosen = [("environment", world.name), *(("policy", model.name) for model in models)]
    chosen.append(("reflector", config.playbook.reflector))
    chosen += [("curator", name) for name in config.playbook.curator.split("+")]
    chosen += [("gate", name) for name in config.gate.names]
    chosen.append(("embedder", app.named_embedder(config)[0]))
    known = _shipped(config)
    yield from ((what, name, known[what]) for what, name in chosen)
    yield from (("policy.model of 'scripted'", model.model, ()) for model in models if model.name == "scripted")
    if world.name == "tools":
        yield from ((f"environment.{key}", str(world.options.get(key, "")), ()) for key in ("tools", "grade"))


def _trained(config: Config) -> Iterator[tuple[str, str, Iterable[str]]]:
    """Yield the same of the members of a training."""
    from policies.rl.slots import names

    named = ((key, getattr(config.train, key).name, slot) for key, slot in MEMBERS.items())
    yield from ((f"train.{key}", name, names(slot)) for key, name, slot in named if name)


def _shipped(config: Config) -> Mapping[str, Iterable[str]]:
    """Return what may be named -> the names that `evolve.loop.assembly` builds something of."""
    from policies.roles import Policies
    from policies.scripted import ScriptedPolicy

    nobody = ScriptedPolicy((), name="none")
    return {
        "environment": app.shipped_environments(),
        "policy": app.shipped_policies(config.policy),
        "reflector": app.shipped_reflectors(nobody),
        "curator": app.shipped_curators(config, Policies.of(nobody), lambda _: None),
        "gate": (*app.shipped_gates(), DEFAULT),
        "embedder": app.shipped_embedders(),
    }
