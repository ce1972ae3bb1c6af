from evolve.archive.backup import Backup
from evolve.archive.merging import Merged
from evolve.compare.against import Against
from evolve.compare.comparison import Comparison
from evolve.compare.plan import ComparisonOptions
from evolve.config.file import load_config
from evolve.config.model import (
    Config,
    EnvironmentSection,
    GateSection,
    MemorySection,
    Mode,
    PlaybookSection,
    PolicySection,
    RoleSection,
    RunSection,
    TeacherSection,
)
from evolve.config.preset import AppliedPreset
from evolve.config.sections import (
    BudgetSection,
    ControlsSection,
    ExemplarsSection,
    ForgetSection,
    LogSection,
    SkillsSection,
    TelemetrySection,
)
from evolve.config.tables import Member
from evolve.config.training import (
    BranchingTable,
    HostedTraining,
    LlamaRollouts,
    PartialRollouts,
    PreferenceTable,
    RolloutReuse,
    SftTable,
    TrainingLimits,
    TrainSection,
)
from evolve.environments.bfcl.environment import Bfcl, BfclConfig
from evolve.environments.bfcl.world import BfclWorld
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.tools import ToolsEnvironment, Transcript
from evolve.episode.metrics import Metrics
from evolve.errors import ConfigError, EnvironmentFailure, UserCodeError, WorkspaceClosed
from evolve.gates.decision_ledger import GateDecision
from evolve.gates.review_queue import Standing
from evolve.integrations.agent import Agent, Asked, Solve
from evolve.integrations.langchain_middleware import Grade, Learning, LearningState
from evolve.integrations.langgraph_store import JournalStore, open_journal_store
from evolve.loop.evaluate import EvalReport
from evolve.loop.history import RunSummary
from evolve.loop.report import Report
from evolve.loop.session import Outside, Parts, RunResult, aresume, arun, resume, run
from evolve.loop.state import Turn
from evolve.progress import Observer, Progress
from evolve.protocols import Action, ActionFormat, Demonstration, Environment, Episode, StepResult
from evolve.statistics.paired import Paired
from evolve.training.promotion_gate import GenerationTrial
from evolve.training.skyrl import ChainGenerator, skyrl_generator
from evolve.training.training_session import Trained
from evolve.training.verl import verl_dataset
from evolve.workspace.async_facade import AsyncWorkspace
from evolve.workspace.editing import (
    HistoryRow,
    KnowledgeDetail,
    KnowledgeRow,
    KnowledgeScope,
    SearchRow,
    Stats,
    UtilityEstimate,
)
from evolve.workspace.episode_rows import EpisodeDetail, EpisodeRow, FigureRow
from evolve.workspace.exchange import ExportedSkills, ImportedPlaybook, ImportedSkills, PlaybookFormat, SkillFormat
from evolve.workspace.facade import Workspace
from evolve.workspace.forgetting import ForgottenRow
from evolve.workspace.opening import aopen, open
from evolve.workspace.plain_rows import Rows
from evolve.workspace.playbook_text import Playbook
from evolve.workspace.policy_versions import GenerationRow, Promoted
from evolve.workspace.reviewing import ProposalRow
from evolve.workspace.seeding import add_skill
from evolve.workspace.task_session import AsyncOpenTask, Finished, OpenTask
from evolve.workspace.versions import KnowledgeDiff, SnapshotRow
from memory.doctor import Finding
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
from playbooks.notebook.note_curator import NotebookSettings
from playbooks.protocols import Curator, Reflector
from playbooks.retirement import HarmfulRule, UnusedRule, UselessRule
from policies.budget import Budget, BudgetedPolicy
from policies.cache import CachedPolicy
from policies.errors import BudgetExceeded, PolicyError, PolicyRefused, PolicyUnavailable
from policies.features import ServerFeatures
from policies.generations.server_check import CanaryReport
from policies.langchain import LangChainOptions, LangChainPolicy
from policies.openai_server import OpenAIPolicy, ServerOptions
from policies.openai_transport import Connection
from policies.price import Price
from policies.protocols import Message, Policy, Profile, Reply, ReplyStore, SamplingParams, ToolSpec
from policies.recordings import Recordings
from policies.rl.optimising import Dtype
from policies.roles import Role
from policies.scripted import Script, ScriptedPolicy
from policies.structured import Structured, generate_structured
from policies.templates import oneline
from skills.distill import DistillSettings
from skills.record import Skill, SkillTest
from skills.retrieval import Way
from skills.skill_retirement import UnusedSkill, UselessSkill

__all__ = [
    "Action",
    "ActionFormat",
    "Against",
    "Agent",
    "AppliedPreset",
    "Asked",
    "AsyncOpenTask",
    "AsyncWorkspace",
    "Backup",
    "BadInput",
    "Bfcl",
    "BfclConfig",
    "BfclWorld",
    "BranchingTable",
    "Budget",
    "BudgetExceeded",
    "BudgetSection",
    "BudgetedPolicy",
    "CachedPolicy",
    "CanaryReport",
    "ChainGenerator",
    "Check",
    "Commit",
    "Comparison",
    "ComparisonOptions",
    "Config",
    "ConfigError",
    "Connection",
    "ControlsSection",
    "Curator",
    "DeltaOp",
    "Demonstration",
    "DistillSettings",
    "Dtype",
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
    "Finding",
    "Finished",
    "ForgetSection",
    "ForgottenRow",
    "Gate",
    "GateDecision",
    "GateSection",
    "GenerationRow",
    "GenerationTrial",
    "Grade",
    "HarmfulRule",
    "HistoryRow",
    "HostedTraining",
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
    "LangChainOptions",
    "LangChainPolicy",
    "Learning",
    "LearningState",
    "LlamaRollouts",
    "LogSection",
    "Member",
    "MemorySection",
    "Merged",
    "Message",
    "Metrics",
    "Mode",
    "NotFound",
    "NotebookSettings",
    "Observer",
    "Office",
    "OfficeConfig",
    "Op",
    "OpResult",
    "OpenAIPolicy",
    "OpenTask",
    "Outcome",
    "Outside",
    "Paired",
    "PartialRollouts",
    "Parts",
    "Payload",
    "Playbook",
    "PlaybookFormat",
    "PlaybookSection",
    "Policy",
    "PolicyError",
    "PolicyRefused",
    "PolicySection",
    "PolicyUnavailable",
    "PreferenceTable",
    "Price",
    "Profile",
    "Progress",
    "Promoted",
    "ProposalRow",
    "Provenance",
    "Record",
    "Recordings",
    "Reflection",
    "Reflector",
    "Reply",
    "ReplyStore",
    "Report",
    "Role",
    "RoleSection",
    "RolloutReuse",
    "Rows",
    "RunResult",
    "RunSection",
    "RunSummary",
    "SamplingParams",
    "Script",
    "ScriptedPolicy",
    "SearchRow",
    "ServerFeatures",
    "ServerOptions",
    "SftTable",
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
    "Structured",
    "Task",
    "TeacherSection",
    "TelemetrySection",
    "ToolCall",
    "ToolSpec",
    "ToolsEnvironment",
    "TrainSection",
    "Trained",
    "TrainingLimits",
    "Trajectory",
    "Transcript",
    "Trust",
    "Turn",
    "UnusedRule",
    "UnusedSkill",
    "Usage",
    "UsageCounts",
    "UselessRule",
    "UselessSkill",
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
    "generate_structured",
    "load_config",
    "oneline",
    "open",
    "open_journal_store",
    "resume",
    "run",
    "skyrl_generator",
    "verl_dataset",
]
