"""Sections of the configuration that are about knowledge as it is used and forgotten, limits and controls."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from evolve.config.tables import Section
from memory.redact import without_password
from playbooks import retirement
from playbooks.kinds.exemplar import OBSERVED_CHARS
from skills import skill_retirement
from skills.retrieval import Way


class SkillsSection(Section, skill_retirement.Limits):
    """`[skills]`: functions that worked, called by later tasks (environments whose actions are code)."""

    enabled: bool = False
    """Show skills, and let the agent make its own."""
    k: int = Field(default=16, ge=0)
    """Most skills chosen for a task; those that they call come with them."""
    token_budget: int = Field(default=512, ge=0)
    """Most tokens of the list of skills in a prompt."""
    ways: tuple[Way, ...] = ("scenario", "query", "description", "used")
    """How a task finds skills, the preferred way first: made for its `scenario`, for a `query` with the same words, for
    one near it by `embedding`, described with its words, or, whatever the words, `used` with success."""
    retire: tuple[Literal["useless", "unused"], ...] = ("useless",)
    """Rules that retire skills after each batch. Empty = none is retired."""


class ExemplarsSection(Section):
    """`[exemplars]`: solved tasks, shown as earlier turns of the conversation (full prompts only)."""

    enabled: bool = False
    """Keep tasks that were solved, and show those most like the task. Off by default: they take tokens of every prompt,
    and compact prompts have no place for them."""
    k: int = Field(default=3, ge=1)
    """Most exemplars shown with a task; the most similar one stands last, nearest to it."""
    token_budget: int = Field(default=768, ge=1)
    """Most tokens of `playbook.token_budget` that they take."""
    observation_chars: int = Field(default=OBSERVED_CHARS, ge=20)
    """Most characters of an observation in an exemplar; a longer one loses its middle. A model follows turns that look
    like its own: where every observation ends with what can be done next, keep all of it."""
    gold: bool = False
    """Keep the environment's own solution of a task that no attempt solved, where it has one: learning from
    demonstrations, for an agent that never succeeds by itself. Not with `run.label_free`."""


class ForgetSection(Section, retirement.Limits):
    """`[forget]`: when evidence retires what was learned. Ages are counted in tasks."""

    rules: tuple[Literal["harmful", "useless", "contradicted", "unused"], ...] = ("harmful", "useless", "contradicted")
    """Applied after each batch, in this order. Empty = nothing is retired."""
    half_life: float | None = Field(default=100, gt=0)
    """Tasks after which a helpful or harmful mark counts half. The counters in the journal never fade."""


class BudgetSection(Section):
    """`[budget]`: limits of one run; a run that reaches one stops cleanly and can be resumed."""

    calls: int | None = Field(default=None, ge=1)
    """Model calls."""
    tokens: int | None = Field(default=None, ge=1)
    """Prompt and completion tokens together."""
    cost_usd: float | None = Field(default=None, gt=0)
    """Money, by `policy.price` or what the backend reports."""
    seconds: float | None = Field(default=None, gt=0)
    """Wall time."""


class TelemetrySection(Section):
    """`[telemetry]`: traces and metrics of runs. They watch a run and never stop it."""

    enabled: bool = False
    """Keep the spans in `telemetry.db` of the workspace, for `evolve traces`. Needs the extra `telemetry`."""
    otlp_endpoint: str | None = None
    """Send them to this OTLP/HTTP collector as well, `http://host:4318`; none = OTEL_EXPORTER_OTLP_ENDPOINT, if set."""
    capture_content: bool = False
    """Let spans hold prompts, replies, actions, observations and recalled texts, redacted; so does the variable
    OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true."""

    @field_validator("otlp_endpoint")
    @classmethod
    def _without_password(cls, url: str | None) -> str | None:
        return url and without_password(url, "write it to the environment variable OTEL_EXPORTER_OTLP_HEADERS")


class LogSection(Section):
    """`[log]`: what the command logs, to stderr. What happened in a run is in the journal whatever this says."""

    format: Literal["console", "json"] = "console"
    """`console`: for people. `json`: one object a line, with run, snapshot and policy version."""
    level: Literal["debug", "info", "warning", "error"] = "warning"
    """Least level that is written; `info` has a line for every task, gate and batch."""
    file: bool = False
    """Append the lines from `info` on, as JSON, to `logs/<day>.jsonl` of the workspace as well."""


class ControlsSection(Section):
    """`[controls]`: what the run is compared with."""

    no_memory: float | Literal["auto"] = "auto"
    """Share of tasks also done without memory; `auto` = 0.25 for policies that cost nothing, 0 for priced ones."""
    aa: bool = False
    """Frozen runs: evaluate everything twice with different seeds, to know the floor of flips."""
