"""ACE as its authors published it: no package, so a checkout of theirs is named, and this runs inside its folder.

Its public class `ACE` in mode `offline`, with its own prompts and defaults; the address of the server is set on the
three clients that it made. Given by us: the environment's description as context, the grader as data processor, and
validation tasks for its own selection.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from assignment import Assignment, Question, read

TOKENS = 1024
"""Most tokens of a reply, in every role, as for kayba. Its own default is 4,096."""
STEPS = 100
"""Its own default of tasks between two validations; fewer where there are fewer tasks, else it never selects."""


class Processor:
    """The grader in its own shape: it asks with an answer and a target, so the task is found by its target."""

    def __init__(self, given: Assignment) -> None:
        """Know the tasks that may be learned from."""
        self.given = given
        self.by_target = {each.answer: each for each in (*given.train, *given.validation)}

    def answer_is_correct(self, predicted: str, target: str) -> bool:
        """Return whether the environment accepts an answer."""
        return self.given.grade(self.by_target[target], predicted)[0]

    def evaluate_accuracy(self, answers: list[str], targets: list[str]) -> float:
        """Return the share of right answers."""
        right = [self.answer_is_correct(*each) for each in zip(answers, targets, strict=True)]
        return sum(right) / len(right) if right else 0.0


def framework(given: Assignment, playbook: str | None):
    """Return its main class over the server. Raises `SystemExit` where the checkout is not one."""
    checkout = Path(given.options["checkout"])
    if not (checkout / "ace" / "ace.py").is_file():
        raise SystemExit(f"{str(checkout)!r} is no checkout of ace-agent/ace")
    os.environ["OPENAI_API_KEY"] = "none"
    os.environ.setdefault("TIKTOKEN_CACHE_DIR", _encodings())
    sys.path.insert(0, str(checkout))
    from ace.ace import ACE

    ours = ACE("openai", given.model, given.model, given.model, max_tokens=TOKENS, initial_playbook=playbook)
    for client in (ours.generator_client, ours.reflector_client, ours.curator_client):
        client.base_url = given.base_url
    return ours


def _encodings() -> str:
    """Return a folder with the encoding that its counting of tokens needs, which litellm ships: no download."""
    import importlib.util

    found = importlib.util.find_spec("litellm")
    where = Path(found.origin).parent if found and found.origin else Path()
    return str(where / "litellm_core_utils" / "tokenizers")


def samples(given: Assignment, questions: tuple[Question, ...]) -> list[dict]:
    """Return tasks in its own shape."""
    return [
        {"context": given.description, "question": each.question, "target": each.answer, "others": {}}
        for each in questions
    ]


def main() -> None:
    """Adapt offline, or answer with the playbook that its own validation chose."""
    given = read()
    kept = given.folder / "playbook.txt"
    if given.phase == "adapt":
        ours = framework(given, None)
        config = {
            "task_name": "tasks",
            "save_dir": str(given.folder / "run"),
            "eval_steps": min(STEPS, len(given.train)),
            "playbook_token_budget": given.context // 4,
        }
        train, validation = samples(given, given.train), samples(given, given.validation)
        ours.run("offline", train, validation, None, Processor(given), config)
        kept.write_text(ours.best_playbook)
        given.adapted(ours.best_playbook.count("helpful="), last=ours.playbook.count("helpful="))
        return
    ours = framework(given, kept.read_text())
    from utils import extract_answer

    logs = given.folder / "run" / "answers"
    logs.mkdir(parents=True, exist_ok=True)

    def ask(question: Question) -> str:
        reply, _, _ = ours.generator.generate(
            question.question, kept.read_text(), given.description, call_id="test_held_out", log_dir=str(logs)
        )
        return extract_answer(reply)

    given.answer_all(ask)


if __name__ == "__main__":
    main()
