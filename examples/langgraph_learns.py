"""An existing LangChain agent learns: three lines more, those with `learning` in them.

    python examples/langgraph_learns.py

The agent opens doors that want a word, which nobody told it; a refusal does. The chat model is a script, so that the
example runs anywhere: it says the word that its prompt holds. Yours would be `create_agent("anthropic:...", ...)`; then
leave out `reflector` and `curator`, and pass `model=` to have lessons written by it.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import ToolException, tool

from evolve import Config, Learning


@tool
def open_door(color: str, word: str = "") -> str:
    """Open a door."""
    if word != color[::-1]:
        raise ToolException(f"open_door: the {color} door must hear the word {color[::-1]}")
    return "open"


open_door.handle_tool_error = True


class Doorman(BaseChatModel):
    """Stands for your model: it reads its prompt, calls the tool, and stops when the door is open."""

    @property
    def _llm_type(self) -> str:
        return "doorman"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Doorman:
        """Know the tool already."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        answer = AIMessage("It is open.")
        if not (isinstance(messages[-1], ToolMessage) and messages[-1].status == "success"):
            text = "\n".join(str(message.text) for message in messages)
            color = re.findall(r"Open the (\w+) door\.", text)[-1]
            told = re.search(rf"the {color} door must hear the word (\w+)", text)
            arguments = {"color": color, "word": told[1] if told else ""}
            answer = AIMessage("", tool_calls=[{"name": "open_door", "args": arguments, "id": f"c{len(messages)}"}])
        return ChatResult(generations=[ChatGeneration(message=answer)])


def politely(state: dict[str, Any]) -> bool:
    """Grade a conversation: no door had to refuse."""
    return not any(isinstance(message, ToolMessage) and message.status == "error" for message in state["messages"])


def main() -> None:
    """Open six doors and print how many calls each took."""
    with tempfile.TemporaryDirectory() as folder:
        config = Config.model_validate(
            {
                "root": Path(folder),
                "playbook": {"reflector": "rules", "curator": "direct"},
                "gate": {"names": ["default"]},
            }
        )
        learning = Learning(config, grade=politely)
        agent = create_agent(Doorman(), [open_door], middleware=[learning])
        for color in ("red", "blue", "red", "green", "blue", "red"):
            state = agent.invoke({"messages": [("user", f"Open the {color} door.")]})
            calls = sum(len(m.tool_calls) for m in state["messages"] if isinstance(m, AIMessage))
            print(f"{color:<6} {calls} calls")
        learning.close()


if __name__ == "__main__":
    main()
