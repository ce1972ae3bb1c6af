"""GEPA (package gepa): evolves the system prompt by reflecting on batches of train tasks, selects on validation tasks.

Its public entry `gepa.optimize` with its default adapter and its own `gepa.lm.LM` for both roles. Given by us: the seed
prompt (the environment's description), the grader as its evaluator, and the budget: three graded replies for each train
task, as many as our own arms may attempt.
"""

from __future__ import annotations

import json

import gepa
from assignment import Assignment, Question, read
from gepa.adapters.default_adapter.default_adapter import DefaultAdapter, EvaluationResult
from gepa.lm import LM

ATTEMPTS = 3
"""Graded replies for each train task (`max_metric_calls`)."""
VALIDATION = 50
"""Most validation tasks that candidates are selected on; each candidate that is tried on them costs as many replies."""
REFLECTION_TOKENS = 1024


def settings(given: Assignment, temperature: float, max_tokens: int) -> dict:
    """Return what GEPA's own client is told besides the model's name."""
    where = {"api_base": given.base_url, "api_key": "none"}
    return {**where, "temperature": temperature, "max_tokens": max_tokens, "seed": given.seed}


def adapt(given: Assignment) -> None:
    """Optimise the prompt, and keep the best."""
    tasks = {question.question: question for question in (*given.train, *given.validation)}

    def evaluate(data: dict, response: str) -> EvaluationResult:
        right, feedback = given.grade(tasks[data["input"]], response or "")
        return EvaluationResult(score=float(right), feedback=feedback)

    def instances(questions: tuple[Question, ...]) -> list[dict]:
        return [{"input": each.question, "additional_context": {}, "answer": each.answer} for each in questions]

    name, acting = f"openai/{given.model}", settings(given, 0.0, given.max_tokens)
    result = gepa.optimize(
        seed_candidate={"system_prompt": given.description},
        trainset=instances(given.train),
        valset=instances(given.validation[:VALIDATION]),
        adapter=DefaultAdapter(model=name, evaluator=evaluate, litellm_batch_completion_kwargs=acting),
        reflection_lm=LM(name, **settings(given, 1.0, REFLECTION_TOKENS)),
        max_metric_calls=ATTEMPTS * len(given.train),
        run_dir=str(given.folder / "run"),
        seed=given.seed,
        display_progress_bar=False,
        raise_on_exception=False,
    )
    best = result.best_candidate["system_prompt"]
    (given.folder / "prompt.txt").write_text(best)
    given.adapted(
        int(best != given.description),
        candidates=len(result.candidates),
        metric_calls=result.total_metric_calls,
        scores=json.loads(json.dumps(result.val_aggregate_scores)),
    )


def main() -> None:
    """Adapt, or answer with the best prompt."""
    given = read()
    if given.phase == "adapt":
        adapt(given)
        return
    acting = LM(f"openai/{given.model}", **settings(given, 0.0, given.max_tokens))
    prompt = (given.folder / "prompt.txt").read_text()

    def ask(question: Question) -> str:
        return acting([{"role": "system", "content": prompt}, {"role": "user", "content": question.question}]) or ""

    given.answer_all(ask)


if __name__ == "__main__":
    main()
