"""Sections of the configuration that are about knowledge as it is used and forgotten, limits and controls."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from skills.retrieval import Way


class Section(BaseModel):
    """Base of a section."""

    model_config = ConfigDict(frozen=True, extra="forbid")


FROM_ROOT = "from root"
"""Marks a key of an environment that names a file or folder, as seen from the folder of evolve.toml."""
RootPath = Annotated[str, FROM_ROOT]


class SkillsSection(Section):
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
    revise: int = Field(default=0, ge=0)
    """Curator `distill`: most new answers it asks for after what is wrong with a function, as it reads and as its own
    task goes with it. 0 = it asks once, and the gates decide."""
    retire: tuple[Literal["useless", "unused"], ...] = ("useless",)
    """Rules that retire skills after each batch. Empty = none is retired."""
    gain: float = 0.0
    """`useless`: least lower bound of the marginal utility that gate `utility` measured, in points of success."""
    floor: float = Field(default=0.2, gt=0, lt=1)
    """`useless`: least lower bound of the utility by marks, where no gate measured it."""
    evidence: float = Field(default=4, ge=1)
    """`useless`: least count of marks, as decayed by `forget.half_life`."""
    unused: int = Field(default=300, ge=1)
    """`unused`: tasks without a call that retire."""


class ExemplarsSection(Section):
    """`[exemplars]`: solved tasks, shown as earlier turns of the conversation (full prompts only)."""

    enabled: bool = False
    """Keep tasks that were solved, and show those most like the task. Off by default: they take tokens of every prompt,
    and compact prompts have no place for them."""
    k: int = Field(default=3, ge=1)
    """Most exemplars shown with a task; the most similar one stands last, nearest to it."""
    token_budget: int = Field(default=768, ge=1)
    """Most tokens of `playbook.token_budget` that they take."""


class ForgetSection(Section):
    """`[forget]`: when evidence retires what was learned. Ages are counted in tasks."""

    rules: tuple[Literal["harmful", "useless", "contradicted", "unused"], ...] = ("harmful", "useless", "contradicted")
    """Applied after each batch, in this order. Empty = nothing is retired."""
    half_life: float | None = Field(default=100, gt=0)
    """Tasks after which a helpful or harmful mark counts half. The counters in the journal never fade."""
    floor: float = Field(default=0.5, gt=0, lt=1)
    """`useless`: retire when the utility is below it with 95 % confidence. 0.5 = harms as often as it helps."""
    evidence: float = Field(default=4, ge=1)
    """`useless`: least count of marks, as decayed."""
    harmful: int = Field(default=3, ge=1)
    """`harmful`: marks of harm, with no helpful one, that retire."""
    window: int = Field(default=50, ge=1)
    """`harmful`: tasks within which they lie."""
    unused: int = Field(default=500, ge=1)
    """`unused`: tasks without being shown that retire."""


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
