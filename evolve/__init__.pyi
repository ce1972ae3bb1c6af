from evolve.agent import Agent
from evolve.config import Config
from evolve.configfile import load_config
from evolve.errors import ConfigError, EnvironmentFailure, UserCodeError
from evolve.evaluate import EvalReport
from evolve.metrics import Metrics
from evolve.progress import Observer, Progress
from evolve.protocols import Action, Environment, Episode, StepResult
from evolve.session import Parts, RunResult, aresume, arun, resume, run
from evolve.skilled.seeding import add_skill
from memory.errors import EvolveError
from memory.records import Check, Outcome, Step, Task, Trajectory

__all__ = [
    "Action",
    "Agent",
    "Check",
    "Config",
    "ConfigError",
    "Environment",
    "EnvironmentFailure",
    "Episode",
    "EvalReport",
    "EvolveError",
    "Metrics",
    "Observer",
    "Outcome",
    "Parts",
    "Progress",
    "RunResult",
    "Step",
    "StepResult",
    "Task",
    "Trajectory",
    "UserCodeError",
    "add_skill",
    "aresume",
    "arun",
    "load_config",
    "resume",
    "run",
]
