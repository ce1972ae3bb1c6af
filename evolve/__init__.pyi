from evolve.against import Against
from evolve.agent import Agent, Asked, Solve
from evolve.compare.comparison import Comparison
from evolve.compare.plan import ComparisonOptions
from evolve.config import (
    Config,
    EnvironmentSection,
    GateSection,
    MemorySection,
    Mode,
    NotebookSection,
    PlaybookSection,
    PolicySection,
    RoleSection,
    RunSection,
)
from evolve.configfile import load_config
from evolve.errors import ConfigError, EnvironmentFailure, UserCodeError, WorkspaceClosed
from evolve.evaluate import EvalReport
from evolve.history import RunSummary
from evolve.integrations.langchain_middleware import Grade, Learning, LearningState
from evolve.integrations.langgraph_store import JournalStore, open_journal_store
from evolve.metrics import Metrics
from evolve.progress import Observer, Progress
from evolve.proposals import Standing
from evolve.protocols import Action, ActionFormat, Environment, Episode, StepResult
from evolve.report import Report
from evolve.sections import (
    BudgetSection,
    ControlsSection,
    ExemplarsSection,
    ForgetSection,
    LogSection,
    SkillsSection,
    TelemetrySection,
)
from evolve.session import Outside, Parts, RunResult, aresume, arun, resume, run
from evolve.skilled.seeding import add_skill
from evolve.state import Turn
from evolve.training.section import TrainSection
from evolve.training.session import Trained
from evolve.workspace.async_facade import AsyncWorkspace
from evolve.workspace.episodes import EpisodeDetail, EpisodeRow, FigureRow
from evolve.workspace.exchange import ExportedSkills, ImportedPlaybook, ImportedSkills, PlaybookFormat, SkillFormat
from evolve.workspace.facade import Workspace
from evolve.workspace.forgetting import ForgottenRow
from evolve.workspace.knowledge import (
    HistoryRow,
    KnowledgeDetail,
    KnowledgeRow,
    KnowledgeScope,
    SearchRow,
    Stats,
    UtilityEstimate,
)
from evolve.workspace.opening import aopen, open
from evolve.workspace.playbook import Playbook
from evolve.workspace.rows import Rows
from evolve.workspace.tasks import AsyncOpenTask, Finished, OpenTask
from evolve.workspace.versions import KnowledgeDiff, SnapshotRow
from memory.errors import BadInput, EvolveError, NotFound
from memory.protocols import Gate, KnowledgeView
from memory.records import (
    Check,
    Commit,
    DeltaOp,
    Event,
    Injection,
    Insight,
    Op,
    OpResult,
    Outcome,
    Payload,
    Provenance,
    Record,
    Reflection,
    Status,
    Step,
    StopReason,
    Task,
    ToolCall,
    Trajectory,
    Trust,
    Usage,
    UsageCounts,
    Verdict,
)
from playbooks.protocols import Curator, Reflector
from policies.price import Price
from policies.protocols import Message, Policy, Profile, Reply, SamplingParams, ToolSpec
from policies.roles import Role
from policies.scripted import Script, ScriptedPolicy
from skills.record import Skill, SkillTest
from skills.retrieval import Way

__all__ = [
    "Action",
    "ActionFormat",
    "Against",
    "Agent",
    "Asked",
    "AsyncOpenTask",
    "AsyncWorkspace",
    "BadInput",
    "BudgetSection",
    "Check",
    "Commit",
    "Comparison",
    "ComparisonOptions",
    "Config",
    "ConfigError",
    "ControlsSection",
    "Curator",
    "DeltaOp",
    "Environment",
    "EnvironmentFailure",
    "EnvironmentSection",
    "Episode",
    "EpisodeDetail",
    "EpisodeRow",
    "EvalReport",
    "Event",
    "EvolveError",
    "ExemplarsSection",
    "ExportedSkills",
    "FigureRow",
    "Finished",
    "ForgetSection",
    "ForgottenRow",
    "Gate",
    "GateSection",
    "Grade",
    "HistoryRow",
    "ImportedPlaybook",
    "ImportedSkills",
    "Injection",
    "Insight",
    "JournalStore",
    "KnowledgeDetail",
    "KnowledgeDiff",
    "KnowledgeRow",
    "KnowledgeScope",
    "KnowledgeView",
    "Learning",
    "LearningState",
    "LogSection",
    "MemorySection",
    "Message",
    "Metrics",
    "Mode",
    "NotFound",
    "NotebookSection",
    "Observer",
    "Op",
    "OpResult",
    "OpenTask",
    "Outcome",
    "Outside",
    "Parts",
    "Payload",
    "Playbook",
    "PlaybookFormat",
    "PlaybookSection",
    "Policy",
    "PolicySection",
    "Price",
    "Profile",
    "Progress",
    "Provenance",
    "Record",
    "Reflection",
    "Reflector",
    "Reply",
    "Report",
    "Role",
    "RoleSection",
    "Rows",
    "RunResult",
    "RunSection",
    "RunSummary",
    "SamplingParams",
    "Script",
    "ScriptedPolicy",
    "SearchRow",
    "Skill",
    "SkillFormat",
    "SkillTest",
    "SkillsSection",
    "SnapshotRow",
    "Solve",
    "Standing",
    "Stats",
    "Status",
    "Step",
    "StepResult",
    "StopReason",
    "Task",
    "TelemetrySection",
    "ToolCall",
    "ToolSpec",
    "TrainSection",
    "Trained",
    "Trajectory",
    "Trust",
    "Turn",
    "Usage",
    "UsageCounts",
    "UserCodeError",
    "UtilityEstimate",
    "Verdict",
    "Way",
    "Workspace",
    "WorkspaceClosed",
    "add_skill",
    "aopen",
    "aresume",
    "arun",
    "load_config",
    "open",
    "open_journal_store",
    "resume",
    "run",
]
