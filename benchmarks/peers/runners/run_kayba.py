"""kayba's ace-framework: an agent, a reflector and a skill manager that edits a skillbook by tools.

Its public class `ACELiteLLM` with its own prompts and roles; `learn` over the train tasks, `ask` for the held-out ones.
Given by us: the environment's description as context, the grader as its environment, and the right answers. Agents run
ahead of learning in its pipeline, and learn in threads of their own. So tasks are handed over in portions of its own
checkpoint interval, and a killed adaptation goes on with the portion that was not saved.
"""

from __future__ import annotations

import json
import os

from assignment import Assignment, Question, read, write

PORTION = 10
TOKENS = 1024
"""Most tokens of a reply, in every role: all answer in JSON with their reasoning first. Its own default is 2,048, which
small models fill with repetitions."""


def framework(given: Assignment, skillbook: str | None):
    """Return the framework over the server, with what it learned so far."""
    os.environ.update(OPENAI_BASE_URL=given.base_url, OPENAI_API_KEY="none")
    from ace import ACELiteLLM

    return ACELiteLLM.from_model(
        f"openai-chat:{given.model}", max_tokens=TOKENS, temperature=0.0, skillbook_path=skillbook
    )


def environment(given: Assignment):
    """Return the grader in its own shape."""
    from ace import EnvironmentResult, TaskEnvironment

    class Graded(TaskEnvironment):
        """Asks the environment."""

        def evaluate(self, sample, agent_output):
            """Return what the environment says of the final answer."""
            question = Question(sample.id, sample.question, sample.ground_truth)
            right, feedback = given.grade(question, agent_output.final_answer)
            return EnvironmentResult(
                feedback=("Correct. " if right else "Incorrect. ") + feedback,
                ground_truth=sample.ground_truth,
                metrics={"correct": float(right)},
            )

    return Graded()


def adapt(given: Assignment) -> None:
    """Learn, portion by portion."""
    from ace import Sample

    kept, book = given.folder / "state.json", given.folder / "skillbook.json"
    done = json.loads(kept.read_text()) if kept.exists() else {"tasks": 0, "errors": 0, "skillbook": ""}
    if done["skillbook"]:
        book.write_text(done["skillbook"])
    ours, graded = framework(given, str(book) if done["skillbook"] else None), environment(given)
    while done["tasks"] < len(given.train):
        portion = given.train[done["tasks"] : done["tasks"] + PORTION]
        samples = [
            Sample(question=each.question, context=given.description, ground_truth=each.answer, id=each.id)
            for each in portion
        ]
        results = ours.learn(samples, environment=graded)
        given.must_be_alive()
        for result in results:
            if result.error is not None:
                print(f"{type(result.error).__name__}: {result.error}"[:500], flush=True)
        ours.save(str(book))
        done = {
            "tasks": done["tasks"] + len(portion),
            "errors": done["errors"] + sum(result.error is not None for result in results),
            "skillbook": book.read_text(),
        }
        write(kept, done)
    given.adapted(len(ours.skillbook.skills()), errors=done["errors"])


def main() -> None:
    """Adapt, or answer with the skillbook. One question at a time: its agents keep connections to one event loop."""
    given = read()
    if given.phase == "adapt":
        adapt(given)
        return
    ours = framework(given, str(given.folder / "skillbook.json"))
    given.answer_all(lambda question: ours.ask(question.question, given.description), workers=1)


if __name__ == "__main__":
    main()
