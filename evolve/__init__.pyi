from evolve.archive.backup import Backup
from evolve.archive.merging import Merged
from evolve.compare.against import Against
from evolve.compare.arms import ArmRole
from evolve.compare.comparison import ArmFigures, Comparison, Contrast
from evolve.compare.life_results import Learned, Life
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
from evolve.environments.bfcl.data import Variant
from evolve.environments.bfcl.environment import Bfcl, BfclConfig
from evolve.environments.bfcl.world import BfclWorld
from evolve.environments.mcp import McpTools
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.tools import Called, ToolsEnvironment, Transcript
from evolve.episode.injection import Shown
from evolve.episode.metrics import Interval, Metrics
from evolve.episode.skill_runtime.figures import SkillFigures
from evolve.errors import ConfigError, EnvironmentFailure, UserCodeError, WorkspaceClosed
from evolve.gates.account import GateAccount, GateCount
from evolve.gates.decision_ledger import GateDecision
from evolve.gates.review_queue import Standing
from evolve.integrations.agent import Agent, Asked, Solve
from evolve.integrations.langchain_middleware import Grade, Learning, LearningState, Mark
from evolve.integrations.langgraph_store import JournalStore, open_journal_store
from evolve.loop.attempts import AttemptsReport
from evolve.loop.evaluate import EvalReport
from evolve.loop.history import RunSummary
from evolve.loop.lives import Compared
from evolve.loop.report import HeldOut, PassAtK, Report, Taught
from evolve.loop.role_policies import RoleUse
from evolve.loop.session import Outside, Parts, RunResult, aresume, arun, resume, run
from evolve.loop.state import Turn
from evolve.progress import Observer, Progress
from evolve.protocols import Action, ActionFormat, Demonstration, Environment, Episode, StepResult
from evolve.statistics.clusters import Difference, Pairing
from evolve.statistics.paired import Paired
from evolve.training.admission import Weighed
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
from evolve.workspace.opening import aopen, import_workspace, open
from evolve.workspace.plain_rows import Rows
from evolve.workspace.playbook_text import Playbook
from evolve.workspace.policy_versions import GenerationRow, Promoted
from evolve.workspace.reviewing import ProposalRow
from evolve.workspace.seeding import add_skill
from evolve.workspace.task_session import AsyncOpenTask, Finished, OpenTask
from evolve.workspace.versions import Edited, KnowledgeDiff, SnapshotRow
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
from memory.trajectories import Tag
from memory.utility import Measured
from playbooks.notebook.note_curator import NotebookSettings
from playbooks.notebook.retry import PassAt, PassReport
from playbooks.protocols import Curator, Reflector
from playbooks.retirement import HarmfulRule, UnusedRule, UselessRule
from policies.budget import Budget, BudgetedPolicy
from policies.cache import CachedPolicy
from policies.errors import BudgetExceeded, PolicyError, PolicyRefused, PolicyUnavailable
from policies.features import ServerFeatures
from policies.generations.server_check import CanaryReport
from policies.langchain import LangChainOptions, LangChainPolicy
from policies.langchain_ids import TokenChatModel
from policies.llama_adapters import Adapted
from policies.openai_server import OpenAIPolicy, ServerOptions
from policies.openai_transport import Connection
from policies.price import Price
from policies.protocols import Message, MessageRole, Policy, Profile, Reply, ReplyStore, SamplingParams, ToolSpec
from policies.recordings import Recordings
from policies.rl.optimising import Dtype
from policies.roles import Role
from policies.scripted import Answer, Script, ScriptedPolicy
from policies.structured import Structured, generate_structured
from policies.templates import oneline
from skills.distill import DistillSettings
from skills.record import Skill, SkillTest
from skills.retrieval import Way
from skills.skill_retirement import UnusedSkill, UselessSkill

__all__ = [
    "Action",
    "ActionFormat",
    "Adapted",
    "Against",
    "Agent",
    "Answer",
    "AppliedPreset",
    "ArmFigures",
    "ArmRole",
    "Asked",
    "AsyncOpenTask",
    "AsyncWorkspace",
    "AttemptsReport",
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
    "Called",
    "CanaryReport",
    "ChainGenerator",
    "Check",
    "Commit",
    "Compared",
    "Comparison",
    "ComparisonOptions",
    "Config",
    "ConfigError",
    "Connection",
    "Contrast",
    "ControlsSection",
    "Curator",
    "DeltaOp",
    "Demonstration",
    "Difference",
    "DistillSettings",
    "Dtype",
    "Edited",
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
    "GateAccount",
    "GateCount",
    "GateDecision",
    "GateSection",
    "GenerationRow",
    "GenerationTrial",
    "Grade",
    "HarmfulRule",
    "HeldOut",
    "HistoryRow",
    "HostedTraining",
    "ImportedPlaybook",
    "ImportedSkills",
    "Injection",
    "Insight",
    "Interval",
    "JournalStore",
    "KnowledgeDetail",
    "KnowledgeDiff",
    "KnowledgeRow",
    "KnowledgeScope",
    "KnowledgeView",
    "LangChainOptions",
    "LangChainPolicy",
    "Learned",
    "Learning",
    "LearningState",
    "Life",
    "LlamaRollouts",
    "LogSection",
    "Mark",
    "McpTools",
    "Measured",
    "Member",
    "MemorySection",
    "Merged",
    "Message",
    "MessageRole",
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
    "Pairing",
    "PartialRollouts",
    "Parts",
    "PassAt",
    "PassAtK",
    "PassReport",
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
    "RoleUse",
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
    "Shown",
    "Skill",
    "SkillFigures",
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
    "Tag",
    "Task",
    "Taught",
    "TeacherSection",
    "TelemetrySection",
    "TokenChatModel",
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
    "Variant",
    "Verdict",
    "Way",
    "Weighed",
    "Workspace",
    "WorkspaceClosed",
    "add_skill",
    "aopen",
    "aresume",
    "arun",
    "generate_structured",
    "import_workspace",
    "load_config",
    "oneline",
    "open",
    "open_journal_store",
    "resume",
    "run",
    "skyrl_generator",
    "verl_dataset",
]
