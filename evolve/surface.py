"""What `import evolve` offers, and where each name lives. Its twin for type checkers is `evolve/__init__.pyi`."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module

_NAMES = {
    "evolve.compare.against": ("Against",),
    "evolve.integrations.agent": ("Agent", "Asked", "Solve"),
    "evolve.compare.comparison": ("Comparison",),
    "evolve.compare.plan": ("ComparisonOptions",),
    "evolve.config.model": (
        "Config",
        "EnvironmentSection",
        "GateSection",
        "MemorySection",
        "Mode",
        "NotebookSection",
        "PlaybookSection",
        "PolicySection",
        "RoleSection",
        "RunSection",
    ),
    "evolve.config.file": ("load_config",),
    "evolve.environments.bfcl.environment": ("Bfcl", "BfclConfig"),
    "evolve.environments.bfcl.world": ("BfclWorld",),
    "evolve.environments.office.environment": ("Office", "OfficeConfig"),
    "evolve.environments.tools": ("ToolsEnvironment", "Transcript"),
    "evolve.errors": ("ConfigError", "EnvironmentFailure", "UserCodeError", "WorkspaceClosed"),
    "evolve.loop.evaluate": ("EvalReport",),
    "evolve.loop.history": ("RunSummary",),
    "evolve.integrations.langchain_middleware": ("Grade", "Learning", "LearningState"),
    "evolve.integrations.langgraph_store": ("JournalStore", "open_journal_store"),
    "evolve.episode.metrics": ("Metrics",),
    "evolve.progress": ("Observer", "Progress"),
    "evolve.gates.proposals": ("Standing",),
    "evolve.protocols": ("Action", "ActionFormat", "Demonstration", "Environment", "Episode", "StepResult"),
    "evolve.loop.report": ("Report",),
    "evolve.config.sections": (
        "BudgetSection",
        "ControlsSection",
        "ExemplarsSection",
        "ForgetSection",
        "LogSection",
        "SkillsSection",
        "TelemetrySection",
    ),
    "evolve.loop.session": ("Outside", "Parts", "RunResult", "arun", "aresume", "resume", "run"),
    "evolve.workspace.seeding": ("add_skill",),
    "evolve.loop.state": ("Turn",),
    "evolve.config.training": ("TrainSection",),
    "evolve.training.session": ("Trained",),
    "evolve.training.skyrl": ("ChainGenerator", "skyrl_generator"),
    "evolve.workspace.async_facade": ("AsyncWorkspace",),
    "evolve.workspace.episodes": ("EpisodeDetail", "EpisodeRow", "FigureRow"),
    "evolve.workspace.exchange": (
        "ExportedSkills",
        "ImportedPlaybook",
        "ImportedSkills",
        "PlaybookFormat",
        "SkillFormat",
    ),
    "evolve.workspace.facade": ("Workspace",),
    "evolve.workspace.forgetting": ("ForgottenRow",),
    "evolve.workspace.knowledge": (
        "HistoryRow",
        "KnowledgeDetail",
        "KnowledgeRow",
        "KnowledgeScope",
        "SearchRow",
        "Stats",
        "UtilityEstimate",
    ),
    "evolve.workspace.opening": ("aopen", "open"),
    "evolve.workspace.playbook": ("Playbook",),
    "evolve.workspace.rows": ("Rows",),
    "evolve.workspace.tasks": ("AsyncOpenTask", "Finished", "OpenTask"),
    "evolve.workspace.versions": ("KnowledgeDiff", "SnapshotRow"),
    "memory.errors": ("BadInput", "EvolveError", "NotFound"),
    "memory.protocols": ("Gate", "KnowledgeView"),
    "memory.records": (
        "Check",
        "Commit",
        "DeltaOp",
        "Event",
        "Injection",
        "Insight",
        "Op",
        "OpResult",
        "Outcome",
        "Payload",
        "Provenance",
        "Record",
        "Reflection",
        "Status",
        "Step",
        "StopReason",
        "Task",
        "ToolCall",
        "Trajectory",
        "Trust",
        "Usage",
        "UsageCounts",
        "Verdict",
    ),
    "playbooks.protocols": ("Curator", "Reflector"),
    "policies.budget": ("Budget", "BudgetedPolicy"),
    "policies.cache": ("CachedPolicy",),
    "policies.errors": ("BudgetExceeded", "PolicyError", "PolicyRefused", "PolicyUnavailable"),
    "policies.features": ("ServerFeatures",),
    "policies.langchain": ("LangChainOptions", "LangChainPolicy"),
    "policies.openai_server": ("OpenAIPolicy", "ServerOptions"),
    "policies.openai_transport": ("Connection",),
    "policies.price": ("Price",),
    "policies.prompts": ("oneline",),
    "policies.recordings": ("Recordings",),
    "policies.protocols": ("Message", "Policy", "Profile", "Reply", "ReplyStore", "SamplingParams", "ToolSpec"),
    "policies.roles": ("Role",),
    "policies.scripted": ("Script", "ScriptedPolicy"),
    "policies.structured": ("Structured", "generate_structured"),
    "skills.retrieval": ("Way",),
    "skills.record": ("Skill", "SkillTest"),
}

HOME: Mapping[str, str] = {name: module for module, names in _NAMES.items() for name in names}
"""Public name -> module that defines it."""
EXTRAS = {
    **dict.fromkeys(("Grade", "Learning", "LearningState", "ToolsEnvironment", "Transcript"), "langchain"),
    **dict.fromkeys(("LangChainOptions", "LangChainPolicy"), "langchain"),
    **dict.fromkeys(("OpenAIPolicy", "ServerOptions", "Connection"), "openai"),
    **dict.fromkeys(("ChainGenerator", "Trained", "skyrl_generator"), "pocket,rl"),
}
"""Public name -> the extra that brings the packages which it needs beyond the core's."""


def public(name: str) -> object:
    """Return what a public name stands for.

    Raises `AttributeError` for a name that there is not, `ImportError` with the fix where an extra is not installed.
    """
    if name not in HOME:
        near = get_close_matches(name, HOME, n=3)
        fix = f"did you mean {' or '.join(near)}?" if near else "evolve.__all__ lists what it offers"
        raise AttributeError(f"module 'evolve' has no attribute {name!r}; {fix}")
    try:
        return getattr(import_module(HOME[name]), name)
    except ModuleNotFoundError as missing:
        if name not in EXTRAS:
            raise
        raise ImportError(
            f"evolve.{name} needs the package {missing.name!r}: pip install 'evolve-agents[{EXTRAS[name]}]'"
        ) from missing
