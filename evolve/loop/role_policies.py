"""Opens a policy for each role of the configuration, journals what each is asked, and counts what each used."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from evolve.config.model import Config, ModelSection, PolicySection
from evolve.episode.instrumentation import WatchedPolicy
from evolve.episode.journalled_replies import RunReplies
from evolve.errors import ConfigError
from evolve.generations.workspace_registry import home
from evolve.loop import servers
from evolve.loop.assembly import make_policy
from evolve.usercode import users
from memory import paging
from memory.records import Frozen, Usage
from memory.store import Store
from policies.budget import Budget, BudgetedPolicy
from policies.cache import CachedPolicy
from policies.protocols import Policy
from policies.roles import ACTING, ROLES, Policies, Role, SampledPolicy

SERVER = "server"


class RoleUse(Frozen):
    """What one role of a run came to."""

    role: str
    """`acting` (the gates' episodes included), one of `policies.roles.ROLES`, or `server` (finding out what the servers
    can do); empty = journalled by a version that knew no roles."""
    policy: str
    """Name and version; empty where the record does not tell."""
    usage: Usage


@asynccontextmanager
async def opened(
    section: PolicySection, workspace: Path | None, acting: Policy | None, own: Mapping[Role, Policy]
) -> AsyncGenerator[Policies]:
    """Give a policy for each role, equal sections sharing one; what was made here is closed afterwards.

    `acting` and `own` are objects to use instead of what the section names.
    """
    async with AsyncExitStack() as closing:
        made: dict[str, Policy] = {}

        def one(wanted: ModelSection) -> Policy:
            if wanted.identity not in made:
                made[wanted.identity] = make_policy(wanted, home(wanted, section, workspace))
                closing.push_async_callback(_close, made[wanted.identity])
            return made[wanted.identity]

        if acting is not None:
            made[section.identity] = acting
        first = one(section)
        named = {role: one(wanted) for role, wanted in section.roles.items() if role not in own}
        yield Policies.of(first, **named, **own)


async def _close(policy: Policy) -> None:
    with users(f"aclose() of policy {policy.name!r}"):
        await policy.aclose()


def journalled(policies: Policies, config: Config, store: Store, run_id: str, budget: Budget) -> Policies:
    """Return the policies of a run: each is journalled under its role, all draw on one budget.

    Raises `ConfigError` for a limit of money over a model without a price: nothing would ever count.
    """
    require_prices(config)
    sections = config.policy.roles

    def wrap(role: str, policy: Policy) -> Policy:
        replies = RunReplies(store, run_id, role)
        asked = CachedPolicy(BudgetedPolicy(WatchedPolicy(policy), budget), replies, scope=run_id)
        section = next((sections[known] for known in sections if known == role), None)
        return SampledPolicy(asked, section.temperature, section.max_tokens) if section else asked

    return policies.each(wrap)


def require_prices(config: Config) -> None:
    """Raise `ConfigError` for a limit of money over a model without a price."""
    asked: dict[str, ModelSection] = {"policy": config.policy}
    asked |= {f"policy.{role}": section for role, section in config.policy.roles.items()}
    free = [at for at, section in asked.items() if section.name in ("openai", "langchain") and section.price is None]
    if config.budget.cost_usd is not None and free:
        raise ConfigError(
            f"budget.cost_usd = {config.budget.cost_usd:g} limits nothing where a model has no price; set "
            f"{' and '.join(f'{at}.price' for at in free)} (US dollars per million tokens), or limit budget.tokens"
        )


def names(policies: Policies) -> dict[str, str]:
    """Return role -> name and version, of the roles that are not the acting one's."""
    found = {role: getattr(policies, role) for role in ROLES}
    return {role: f"{p.name} {p.version}" for role, p in found.items() if p is not policies.acting}


def sentence(others: Mapping[str, str]) -> str:
    """Return what `names` returned in words."""
    return "roles with a model of their own: " + ", ".join(f"{role} {who}" for role, who in others.items())


def changes(began: Mapping[str, str], policies: Policies) -> list[str]:
    """Return what answers otherwise than when a run began: `policy` -> the acting version, else as `names` returns."""
    now = {"policy": policies.acting.version, **names(policies)}
    return [
        f"the run was started with {who} {began.get(who)!r}, now it is {now.get(who)!r}"
        for who in dict.fromkeys((*began, *now))
        if began.get(who) != now.get(who)
    ]


def used(store: Store, run_id: str, acting: str, roles: Mapping[str, str]) -> tuple[RoleUse, ...]:
    """Return what the roles of a run used, by its journalled replies; `roles` is what `names` returned, and one of them
    that was asked nothing is among them."""
    spent = {role: Usage() for role in roles} | paging.used_by_role(store.journal, run_id)
    if (probed := servers.used(store, run_id)).calls:
        spent[SERVER] = probed
    order = [role for role in (ACTING, *ROLES, SERVER, "") if role in spent]
    return tuple(
        RoleUse(role=role, policy=roles.get(role, acting) if role else "", usage=spent[role]) for role in order
    )


def lines(uses: tuple[RoleUse, ...]) -> list[str]:
    """Return a line for each role."""
    said: list[str] = []
    for use in uses:
        tokens = use.usage.prompt_tokens + use.usage.completion_tokens
        money = f", ${use.usage.cost_usd:.4f}" if use.usage.cost_usd else ""
        who = f"as {use.role} ({use.policy})" if use.role else "as roles that were not journalled"
        who = "what the servers can do" if use.role == SERVER else who
        if use.role and not use.usage.calls:
            said.append(f"nothing was asked {who}")
            continue
        said.append(f"asked {who}: {use.usage.calls:,} calls, {tokens:,} tokens{money}")
    return said
