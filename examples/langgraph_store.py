"""A LangGraph graph that remembers in the journal: what it stored is there tomorrow, with its history.

    python examples/langgraph_store.py

The graph notes what people say about themselves and finds it again by meaning. `open_journal_store` takes the place of
LangGraph's `InMemoryStore`; nothing else changes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore

from evolve import Config, open_journal_store


class Said(TypedDict):
    """One sentence of one person, and the answer."""

    person: str
    text: str
    answer: str


def listen(state: Said, runtime: Runtime) -> dict[str, str]:
    """Answer a question from what is known, and note anything else."""
    store, path = runtime.store, ("people", state["person"])
    assert store is not None
    if state["text"].endswith("?"):
        found = store.search(path, query=state["text"], limit=1)
        return {"answer": found[0].value["text"] if found else "I do not know."}
    store.put(path, f"note-{len(store.search(path, limit=1000)) + 1}", {"text": state["text"]})
    return {"answer": "Noted."}


def converse(store: BaseStore, *lines: tuple[str, str]) -> None:
    """Say the lines to the graph and print its answers."""
    graph = StateGraph(Said).add_node(listen).add_edge(START, "listen").add_edge("listen", END).compile(store=store)
    for person, text in lines:
        print(f"{person}: {text} -> {graph.invoke({'person': person, 'text': text, 'answer': ''})['answer']}")


def main() -> None:
    """Talk today, and again tomorrow, when the workspace is opened anew; then look at the history of one note."""
    with tempfile.TemporaryDirectory() as folder:
        config = Config.model_validate({"root": Path(folder)})
        with open_journal_store(config) as store:
            converse(store, ("Ann", "My favourite food is olive pizza."), ("Ann", "I live in Lisbon."))
        with open_journal_store(config) as store:
            converse(store, ("Ann", "Which food do I like?"), ("Bob", "Which food do I like?"))
            store.delete(("people", "Ann"), "note-2")
            for event in store.history(("people", "Ann"), "note-2"):
                print(f"{event.type} by {event.data['actor']}")


if __name__ == "__main__":
    main()
