"""The boundary to code that the user brought: its errors name its file and line, and what it returns is checked.

Inside `users(...)` an unexpected exception that passed through code of the user becomes a `UserCodeError`. An
`EvolveError` passes as it is: `EnvironmentFailure` is how an environment says that it broke. An exception that passed
through no code of the user is a bug of ours, and flies.
"""

from __future__ import annotations

import asyncio
import inspect
import sysconfig
import traceback
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import UnionType
from typing import Any, cast

from evolve.errors import EnvironmentFailure, UserCodeError
from evolve.protocols import Action, Environment, Episode, HasOpening, HasTaskTools, StepResult
from memory.errors import EvolveError
from memory.records import Outcome, Task
from policies.protocols import ToolSpec

_PACKAGES = ("evolve", "playbooks", "skills", "policies", "memory", "contrib")
FRAMES = 3
"""Most lines of the user's code that are shown for one error."""


@contextmanager
def users(what: str) -> Generator[None]:
    """Run code of the user: `what` names it in the error. Raises `UserCodeError` for an exception of that code."""
    try:
        yield
    except EvolveError:
        raise
    except (Exception, SystemExit, asyncio.CancelledError) as caught:
        error = _raised(caught)
        found = places(error)
        if not found or _cancelled(error):
            raise
        said = f"{type(error).__name__}: {error}".rstrip(": ")
        raise UserCodeError(f"{what} raised {said} ({_named(found[-1])})") from error


def _raised(error: BaseException) -> BaseException:
    """Return what was raised: in a coroutine Python makes another error of a `StopIteration`, without its places."""
    cause = error.__cause__
    return cause if isinstance(error, RuntimeError) and isinstance(cause, StopIteration) else error


def _cancelled(error: BaseException) -> bool:
    """Tell whether this task was cancelled, and so its code is not to blame."""
    if not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def places(error: BaseException) -> list[traceback.FrameSummary]:
    """Return where an exception passed through code of the user, outermost first; of a syntax error, its line."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) and error.filename and error.lineno and _theirs(error.filename):
        line = (error.text or "").strip()
        return [traceback.FrameSummary(error.filename, error.lineno, "its source", lookup_line=False, line=line)]
    own = [frame for frame in frames if _theirs(frame.filename)]
    return own or [frame for frame in frames if _installed(frame.filename) and _entered_from_us(frame, frames)]


def trace(error: UserCodeError) -> list[str]:
    """Return the last lines of the user's code that an error passed through, as text for people."""
    found = places(error.__cause__) if error.__cause__ else []
    return [f"  {_named(frame)}: {(frame.line or '').strip()}" for frame in found[-FRAMES:]]


def broke_contract(what: str, function: Callable[..., Any], got: object, wanted: str) -> UserCodeError:
    """Return the error that says what a function of the user returned instead of what its contract says."""
    return UserCodeError(f"{what} returned {_short(got)}; expected {wanted} ({_defined(function)})")


def open_episode(environment: Environment, task: Task, seed: int) -> Episode:
    """Return a fresh episode whose answers are checked. Raises `UserCodeError` for bugs of the environment."""
    what = f"start() of environment {environment.name!r}"
    with users(what):
        episode = environment.start(task, seed)
    missing = [name for name in ("step", "grade", "close") if not callable(getattr(episode, name, None))]
    if missing:
        wanted = f"an episode with step, grade and close; it lacks {', '.join(missing)}"
        raise broke_contract(what, environment.start, episode, wanted)
    checked = CheckedOpening if isinstance(episode, HasOpening) else CheckedEpisode
    return checked(episode, environment.name)


async def begun(environment: Environment, task: Task, seed: int) -> tuple[Episode, str]:
    """Return a fresh episode as it is before its first action, and what its opening shows; empty where it has none.

    Raises as `open_episode`, and what the opening raises; the episode is closed then.
    """
    episode = open_episode(environment, task, seed)
    if not isinstance(episode, HasOpening):
        return episode, ""
    try:
        return episode, await episode.opening()
    except BaseException:
        with suppress(EnvironmentFailure):
            await episode.close()
        raise


class CheckedEpisode:
    """An episode whose errors name the user's code, and whose answers are what the contract says."""

    def __init__(self, episode: Episode, name: str) -> None:
        self._episode, self._of = episode, f"of environment {name!r}"

    async def step(self, action: Action) -> StepResult:
        """Perform one action. Raises `UserCodeError` as `users`, and for anything but a `StepResult`."""
        what = f"step() {self._of}"
        result = await awaited(what, self._episode.step, action)
        if not isinstance(result, StepResult):
            raise broke_contract(what, self._episode.step, result, "evolve.StepResult(observation=...)")
        return result

    async def grade(self) -> Outcome:
        """Grade what was done. Raises `UserCodeError` as `users`, and for anything but an `Outcome` in range."""
        what = f"grade() {self._of}"
        outcome = await awaited(what, self._episode.grade)
        return checked_outcome(what, self._episode.grade, outcome)

    async def close(self) -> None:
        """Release what the episode holds. Raises `UserCodeError` as `users`."""
        await awaited(f"close() {self._of}", self._episode.close)


class CheckedOpening(CheckedEpisode):
    """A checked episode that begins with an observation."""

    async def opening(self) -> str:
        """Return the first scene. Raises `UserCodeError` as `users`, and for anything but a text."""
        what, function = f"opening() {self._of}", cast(HasOpening, self._episode).opening
        said = await awaited(what, function)
        if not isinstance(said, str):
            raise broke_contract(what, function, said, "a text")
        return said


def ask(environment: Environment, method: str, wanted: type | UnionType, *arguments: object) -> Any:
    """Return what a method of an environment says. Raises `UserCodeError` for a bug in it, and for another type."""
    what, function = f"{method}() of environment {environment.name!r}", getattr(environment, method)
    with users(what):
        said = function(*arguments)
    if not isinstance(said, wanted):
        raise broke_contract(what, function, said, _kind(wanted))
    return said


def ask_list(environment: Environment, method: str, wanted: type, *arguments: object) -> tuple[Any, ...]:
    """Return what a method of an environment lists. Raises `UserCodeError` for a bug in it, and for other items."""
    what, function = f"{method}() of environment {environment.name!r}", getattr(environment, method)
    with users(what):
        said = function(*arguments)
        items = tuple(said) if isinstance(said, Iterable) and not isinstance(said, (str, bytes)) else None
    if items is None or not all(isinstance(item, wanted) for item in items):
        raise broke_contract(what, function, said, f"a list of {wanted.__name__}")
    return items


def tools_of(environment: Environment, task: Task) -> tuple[ToolSpec, ...]:
    """Return the tools that are offered in a task: its own where the environment tells them apart, else all.

    Raises `UserCodeError` for a bug of the environment.
    """
    own = isinstance(environment, HasTaskTools)
    return ask_list(environment, "tools_for", ToolSpec, task) if own else environment.tools


def checked_outcome(what: str, function: Callable[..., Any], outcome: object) -> Outcome:
    """Return an outcome as it is. Raises `UserCodeError` for anything else, and for a reward outside [0, 1]."""
    if not isinstance(outcome, Outcome):
        raise broke_contract(what, function, outcome, "evolve.Outcome(success=True or False, reward=0 to 1)")
    if not 0.0 <= outcome.reward <= 1.0:
        raise broke_contract(what, function, outcome, "a reward from 0 to 1: divide by the highest that can be reached")
    return outcome


async def awaited(what: str, function: Callable[..., Any], *arguments: object, **options: object) -> Any:
    """Call a coroutine function of the user. Raises `UserCodeError` as `users`, and where there is nothing to await."""
    with users(what):
        said = function(*arguments, **options)
        if not inspect.isawaitable(said):
            raise broke_contract(what, function, said, "something to await: write it with `async def`")
        return await said


def _theirs(file: str) -> bool:
    return not file.startswith("<") and not _ours(file) and not _installed(file) and not _standard(file)


def _ours(file: str) -> bool:
    return any(Path(file).is_relative_to(home) for home in _homes())


def _installed(file: str) -> bool:
    return not _ours(file) and bool({"site-packages", "dist-packages"} & set(Path(file).parts))


def _standard(file: str) -> bool:
    return file.startswith("<") or Path(file).is_relative_to(sysconfig.get_paths()["stdlib"])


def _entered_from_us(frame: traceback.FrameSummary, frames: list[traceback.FrameSummary]) -> bool:
    """Tell whether an installed package was called by the boundary itself: an environment that came as a package.

    What our own code calls on the way (an HTTP client, say) is entered from another file of ours.
    """
    at = frames.index(frame)
    return at > 0 and Path(frames[at - 1].filename) == Path(__file__)


@cache
def _homes() -> tuple[Path, ...]:
    found = [spec for name in _PACKAGES if (spec := find_spec(name)) is not None]
    return tuple(Path(folder).resolve() for spec in found for folder in spec.submodule_search_locations or ())


def _named(frame: traceback.FrameSummary) -> str:
    return f"{_near(frame.filename)}:{frame.lineno} in {frame.name}"


def _defined(function: Callable[..., Any]) -> str:
    """Return where a function is defined; of a callable object, its class."""
    plain = inspect.unwrap(getattr(function, "__func__", function))
    code = getattr(plain, "__code__", None)
    return f"{_near(code.co_filename)}:{code.co_firstlineno}" if code else f"{type(function).__qualname__}"


def _near(file: str) -> str:
    """Return a file as it is seen from here: relative where it lies below this folder."""
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _kind(wanted: type | UnionType) -> str:
    if isinstance(wanted, UnionType):
        return str(wanted)
    return f"{'an' if wanted.__name__[0] in 'AEIOU' else 'a'} {wanted.__name__}"


def _short(got: object) -> str:
    text = repr(got)
    return f"{text if len(text) <= 80 else text[:77] + '...'} ({type(got).__name__})"
