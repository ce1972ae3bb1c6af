"""Inputs and answers of the tools of `evolve mcp`: their JSON schemas are made of these."""

from __future__ import annotations

from pydantic import Field

from memory.records import Frozen


class Hit(Frozen):
    """One record that was found."""

    id: str
    kind: str
    text: str
    tokens: int
    scores: dict[str, float]


class Playbook(Frozen):
    """Knowledge as text for a prompt."""

    text: str
    tokens: int
    ids: tuple[str, ...]
    snapshot: str
    """Names what was known."""
    session: str
    """The run that this session is in the journal; empty when the server only reads."""


class SkillShown(Frozen):
    """A function that worked."""

    id: str
    name: str
    code: str
    docstring: str
    status: str
    requires: tuple[str, ...]
    counters: dict[str, int]


class Done(Frozen):
    """One thing that was done."""

    action: str = Field(description="The code, call or words.")
    observation: str = Field("", description="What came back.")
    error: str | None = Field(None, description="The error text, if it failed.")


class Recorded(Frozen):
    """How an outcome was stored."""

    episode: str
    session: str
    shown: tuple[str, ...]
    cited: tuple[str, ...]
