"""langchain-continuous-learning: a middleware that keeps a playbook in an agent's state, with reflector and curator.

Its public `ACEMiddleware`. The release brings interfaces of its own, which LangChain's `create_agent` does not take, so
the loop that calls its three hooks is ours: `before_agent`, `wrap_model_call` around the model, `after_model` with the
right answer in the state.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from ace import ACEMiddleware, ModelRequest, ModelResponse, get_playbook_stats
from ace.types import Runtime
from assignment import Assignment, Question, read
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI

LEARNING_TOKENS = 1024


class Agent:
    """A model behind the middleware."""

    def __init__(self, given: Assignment) -> None:
        """Build the acting model, and the middleware with its reflector and curator."""
        self.given = given
        where = {"base_url": given.base_url, "api_key": "none", "model": given.model}
        self.acting = ChatOpenAI(**where, temperature=0.0, max_tokens=given.max_tokens, seed=given.seed)
        learning = ChatOpenAI(**where, temperature=0.0, max_tokens=LEARNING_TOKENS, seed=given.seed)
        self.middleware = ACEMiddleware(
            reflector_model=learning,
            curator_model=learning,
            playbook_token_budget=given.context // 4,
            expected_interactions=max(1, len(given.train)),
        )

    def ask(self, state: dict[str, Any], question: Question) -> str:
        """Return the reply with the playbook of `state` in the system prompt."""
        messages = [HumanMessage(question.question)]
        request = ModelRequest(
            state={**state, "messages": messages},
            system_message=SystemMessage(self.given.description),
            messages=messages,
        )
        return str(self.middleware.wrap_model_call(request, self._call).message.content)

    def learn(self, state: dict[str, Any], question: Question) -> dict[str, Any]:
        """Answer one train task, and return the state after the middleware has learned from it."""
        state = {**state, **(self.middleware.before_agent(state, Runtime()) or {})}
        reply = self.ask(state, question)
        messages = [HumanMessage(question.question), AIMessage(reply)]
        learned = self.middleware.after_model(
            {**state, "messages": messages, "ground_truth": question.answer}, Runtime()
        )
        return {**state, **(learned or {})}

    def _call(self, request: ModelRequest) -> ModelResponse:
        system = [request.system_message] if request.system_message else []
        return ModelResponse(message=self.acting.invoke([*system, *request.messages]))


def main() -> None:
    """Adapt task by task, or answer with the playbook."""
    logging.basicConfig(level=logging.WARNING)
    given = read()
    agent, kept = Agent(given), given.folder / "learned.json"
    if given.phase == "answer":
        known = json.loads(kept.read_text())
        given.answer_all(lambda question: agent.ask(known, question))
        return
    state, errors = dict[str, Any](), 0
    for question in given.train:
        try:
            state = agent.learn(state, question)
        except Exception as failed:  # a reply that the server refuses is this peer's failure, and the stream goes on
            errors += 1
            print(f"{question.id}: {type(failed).__name__}: {failed}"[:500], flush=True)
        given.must_be_alive()  # it swallows errors of its reflector
    kept.write_text(json.dumps(state))
    content = state.get("ace_playbook", {}).get("content", "")
    given.adapted(get_playbook_stats(content)["total_bullets"], errors=errors)


if __name__ == "__main__":
    main()
