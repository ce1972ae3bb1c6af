"""TextWorld's cooking games, generated here from seeds: read the cookbook, cook the meal as it says, eat it.

What has to be learned holds in every game: which tool fries, roasts or grills, what cutting needs, what spoils a meal.
Held-out games have foods and preparations that no train game has. The packages are not dependencies of evolve: jericho,
which plays the games, is GPL-2. They are imported when a game is first needed. Each open game has a copy of jericho's
library to itself, so that many can be played side by side.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from pydantic import Field

from evolve.config.tables import RootPath, Section
from evolve.errors import ConfigError
from evolve.protocols import Action, ActionFormat, StepResult
from memory.errors import BadInput
from memory.records import Check, Outcome, Task, Trajectory
from policies.protocols import ToolSpec

SPLITS = {"train": ("train", 1), "dev": ("valid", 1_000_001), "test_normal": ("test", 2_000_001)}
"""Split -> TextWorld's name of its foods, and the seed of its first game."""
INSTALL = "pip install 'evolve-agents[textworld]' && pip install --no-deps textworld==1.7.0 jericho==3.3.1"
EPISODES = 32
"""Most games that are open at the same time."""
LISTED = "Commands, one a reply:"
"""Stands above the commands that make sense."""
MOST_CHARS = 100
"""Longest command that the game is given."""
META = frozenset({"save", "restore", "script", "transcript", "noscript", "unscript", "print_state"})
"""Verbs with which the interpreter writes and reads files of this machine, which episodes share, or tells everything;
so do those that begin with `tw-`."""

_PROMPT = re.compile(r"\n>\s.*\Z|\n+Would you like to RESTART.*\Z", re.DOTALL)
_REFUSED = re.compile(
    r"(?:That's not|You can't|You cannot|I only understood|I didn't understand|What do you want|Which do you mean|"
    r"I beg your pardon|You need to|You have to|You must|You're carrying too many|"
    r"[^.\n]*(?:already|still needs?|is closed|is locked)\b)"
)
"""How an answer begins that says no."""


class TextWorldConfig(Section):
    """How many games, and how hard."""

    cache: RootPath = ".textworld"
    """Folder that keeps the games once they are made, from the folder of evolve.toml."""
    train: int = Field(default=40, ge=1)
    """Games of the split `train`."""
    dev: int = Field(default=10, ge=0)
    """Games for gates."""
    test: int = Field(default=20, ge=0)
    """Held-out games (`test_normal`)."""
    ingredients: int = Field(default=2, ge=1, le=5)
    """Of a recipe; all have to be found."""
    rooms: Literal[1, 6, 9, 12] = 1
    """Rooms of a house."""
    cook: bool = True
    """Some ingredients are to be fried, roasted or grilled."""
    cut: bool = True
    """Some ingredients are to be sliced, chopped or diced."""
    closed: bool = False
    """Containers and doors have to be opened."""
    commands: bool = False
    """Every observation ends with the commands that make sense now, a line each."""


class TextWorld:
    """Cooking games, one for each seed."""

    name = "textworld"
    action_format: ActionFormat = "text"
    tools: tuple[ToolSpec, ...] = ()
    seedless = True
    max_concurrency = EPISODES
    stop = ("\n",)

    def __init__(self, config: TextWorldConfig | None = None) -> None:
        """Raises `ConfigError` unless the packages are installed. No game is made yet."""
        self.config = config or TextWorldConfig()
        self._scenes: dict[str, str] = {}
        missing = [name for name in ("textworld", "jericho", "tatsu") if find_spec(name) is None]
        if missing:
            raise ConfigError(f"environment 'textworld' needs the package {missing[0]!r}: {INSTALL}")
        self.max_steps = 30 if self.config.rooms == 1 else 60

    def describe(self, profile: str) -> str:
        """Return how commands are written."""
        return (
            "You play a text adventure. Reply with one command and nothing else: look, inventory, go <direction>, "
            "open <thing>, examine <thing>, take <thing> from <place>, put <thing> on <place>, "
            "cook <food> with <appliance>, slice, chop or dice <food> with <tool>, prepare meal, eat <food>."
        )

    def tasks(self, split: str) -> Sequence[Task]:
        """Return one task for each game of a split."""
        counts = {"train": self.config.train, "dev": self.config.dev, "test_normal": self.config.test}
        first = SPLITS[split][1] if split in SPLITS else 0
        return [
            Task(
                id=f"cooking-{seed}",
                instruction="You are hungry. Read the cookbook in the kitchen, cook the meal as it says, and eat it.",
                environment=self.name,
                split=split,
                metadata={"seed": seed},
            )
            for seed in range(first, first + counts.get(split, 0))
        ]

    def start(self, task: Task, seed: int = 0) -> TextWorldEpisode:
        """Return a fresh episode; its game is made when it is first needed, which takes some seconds."""
        return TextWorldEpisode(self.config, task)

    def first_scene(self, task: Task) -> str:
        """Return the first room. Raises `BadInput` for a task of another environment."""
        if task.id not in self._scenes:
            game, state = _start(self.config, task)
            game.close()
            self._scenes[task.id] = _told(state["description"], state, self.config)
        return self._scenes[task.id]

    def gold(self, task: Task) -> Sequence[Action]:
        """Return the commands that TextWorld itself wins by."""
        game, state = _start(self.config, task)
        game.close()
        return [Action(text=command) for command in state["policy_commands"]]

    def outside(self, episode: Trajectory) -> Sequence[str]:
        """Return nothing: every word of a game comes from TextWorld's grammar."""
        return ()


class TextWorldEpisode:
    """Single use."""

    def __init__(self, config: TextWorldConfig, task: Task) -> None:
        self._config, self._task = config, task
        self._game: Any = None
        self._state: Any = None

    async def opening(self) -> str:
        """Return the first room."""
        self._begin()
        return _told(self._state["description"], self._state, self._config)

    async def step(self, action: Action) -> StepResult:
        """Give the game one command."""
        self._begin()
        score, command = self._state["score"], _command(action.text)
        verb = command.lower().partition(" ")[0]
        if verb in META or verb.startswith("tw-"):
            refusal = f"The game does not take {verb!r} here."
            return StepResult(observation=_told(refusal, self._state, self._config), error=refusal)
        with _quiet():
            self._state, _, done = self._game.step(command)
        said = re.sub(r"\n{3,}", "\n\n", _PROMPT.sub("", self._state["feedback"])).strip()
        refused = self._state["score"] == score and not done and _REFUSED.match(said)
        return StepResult(
            observation=said if done else _told(said, self._state, self._config),
            error=said if refused else None,
            done=done,
        )

    async def grade(self) -> Outcome:
        """Return the share of the points that a game has; it is won when the meal is eaten."""
        if self._state is None:
            return Outcome(success=False, reward=0.0)
        won, score, most = bool(self._state["won"]), self._state["score"], self._state["max_score"]
        detail = (
            "" if won else f"{'the meal is spoilt' if self._state['lost'] else 'no meal'}: {score} of {most} points"
        )
        return Outcome(success=won, reward=score / most, checks=(Check(name="meal", passed=won, detail=detail),))

    async def close(self) -> None:
        """End the game."""
        if self._game is not None:
            self._game.close()

    def _begin(self) -> None:
        if self._game is None:
            self._game, self._state = _start(self._config, self._task)


def _told(said: str, state: Any, config: TextWorldConfig) -> str:
    listed = "\n".join((LISTED, *state["admissible_commands"]))
    return f"{said.strip()}\n\n{listed}" if config.commands else said.strip()


def _command(text: str) -> str:
    """Return the first line of a reply, to its first full stop: printable ASCII, since other signs hang a game.

    So does a backslash, which the interpreter takes for a command to itself.
    """
    line = next((line for line in text.splitlines() if line.strip(" >`")), "").split(".")[0]
    kept = "".join(char for char in line if char.isascii() and char.isprintable() and char != "\\")
    return kept[:MOST_CHARS].strip(" >`")


def _start(config: TextWorldConfig, task: Task) -> tuple[Any, Any]:
    """Return a game and its first state; the game is made where the cache has none. Raises `BadInput`."""
    seed = task.metadata.get("seed")
    if task.split not in SPLITS or not isinstance(seed, int):
        raise BadInput(f"textworld has no task {task.id!r}; tasks are seeds, as `tasks` lists them")
    file = _made(config, SPLITS[task.split][0], seed)
    wanted = ("description", "admissible_commands", "policy_commands", "score", "max_score", "won", "lost")
    with _quiet():
        textworld = importlib.import_module("textworld")
        game = textworld.start(str(file), textworld.EnvInfos(feedback=True, **dict.fromkeys(wanted, True)))
        return game, game.reset()


def _made(config: TextWorldConfig, foods: str, seed: int) -> Path:
    """Return the file of a game. It is put in place when it is whole, so that processes may share a cache."""
    settings = {
        "recipe": config.ingredients,
        "take": config.ingredients,
        "go": config.rooms,
        "cook": config.cook,
        "cut": config.cut,
        "open": config.closed,
        "drop": False,
        "split": foods,
        "recipe_seed": seed,
    }
    name = "-".join(f"{key}{int(value) if isinstance(value, int) else value}" for key, value in settings.items())
    file = Path(config.cache) / f"{name}.z8"
    if file.exists():
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    with _quiet(), TemporaryDirectory(dir=file.parent) as folder:
        options = importlib.import_module("textworld").GameOptions()
        options.seeds, options.path = seed, str(Path(folder) / file.name)
        game = importlib.import_module("textworld.challenges.tw_cooking.cooking").make(settings, options)
        importlib.import_module("textworld.generator").compile_game(game, options)
        for suffix in (".json", ".z8"):
            (Path(folder) / file.with_suffix(suffix).name).replace(file.with_suffix(suffix))
    return file


@contextmanager
def _quiet() -> Generator[None]:
    """Keep to ourselves that jericho does not know these games by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


MEMBER = TextWorld
