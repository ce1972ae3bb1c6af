"""The corpus teaches what it says, from deployments nobody is evaluated on, in words that leave some held out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from evolve.environments.office.environment import DEPLOYMENTS, Office, OfficeConfig
from evolve.environments.office.families import LONG
from evolve.environments.office.house_rules import RULES, seeded
from evolve.environments.office.wording import FRAMES, HELD_OUT, meaning, sentence
from labs.pocket.corpus.documents import Share, make
from labs.pocket.corpus.pack import ROLES, Document, train_tokenizer, write
from labs.pocket.corpus.setting import FIRST_DEPLOYMENT, LAST_DEPLOYMENT, draw_family
from labs.pocket.corpus_batches import read_corpus
from labs.pocket.shape import CONTEXT
from memory.errors import BadInput


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return make(Share(seed=7, start=0, count=60))


def test_the_same_share_gives_the_same_documents(documents: list[Document]) -> None:
    assert make(Share(seed=7, start=0, count=60)) == documents


def test_deployments_stay_out_of_the_evaluation_range() -> None:
    assert (FIRST_DEPLOYMENT, LAST_DEPLOYMENT) == (1_000, 99_999)
    assert range(FIRST_DEPLOYMENT) == DEPLOYMENTS
    for deployment in (-1, FIRST_DEPLOYMENT):
        with pytest.raises(BadInput, match="expected 0 to 999"):
            Office(OfficeConfig(deployment=deployment))


def test_no_training_family_is_a_challenge_family() -> None:
    rng = seeded("families")
    assert not {draw_family(rng) for _ in range(5_000)} & set(LONG)


def test_held_out_wordings_never_appear(documents: list[Document]) -> None:
    text = "\n".join(message.content for document in documents for message in document.messages)
    said = [sentence(r, o, f) for r in RULES for o in r.options for f in FRAMES]
    held_out = [sentence(r, o, f) for r in RULES for o in r.options for f in HELD_OUT]
    assert any(line in text for line in said)
    assert not any(line in text for line in held_out)


def test_every_role_is_taught_and_replies_are_what_the_live_roles_parse(documents: list[Document]) -> None:
    assert {document.role for document in documents} == set(ROLES)
    for document in documents:
        assert document.messages[-1].role == "assistant"
        if document.role == "reflect":
            assert set(json.loads(document.messages[-1].content)) == {"insights", "harmful"}
        elif document.role == "curate":
            assert json.loads(document.messages[-1].content)["op"] in {"ADD", "NONE", "EDIT"}


def test_reflections_name_only_what_the_prompt_shows(documents: list[Document]) -> None:
    """A lesson's value stands in the prompt: in an error, a failed check or the call that worked."""
    for document in documents:
        if document.role == "reflect":
            prompt, reply = (message.content for message in document.messages)
            for insight in json.loads(reply)["insights"]:
                option = meaning(insight)[1]
                assert option in prompt or option in {"nothing", "iso", "plain"}


def test_copied_entities_have_the_same_tokens_in_task_and_code(documents: list[Document]) -> None:
    tokenizer = train_tokenizer(documents, 600)
    task = tokenizer.encode('pay "Beven" 26.51 for "blue report"').tokens
    code = tokenizer.encode('apps.payments.send(to=c["id"], amount=26.51, memo="blue report")').tokens
    amount = ["2", "6", ".", "5", "1"]
    assert any(task[i : i + 5] == amount for i in range(len(task)))
    assert any(code[i : i + 5] == amount for i in range(len(code)))
    assert task[-4:][:2] == code[-4:][:2] or task[-3:-1] == code[-3:-1]


def test_the_file_holds_aligned_arrays(documents: list[Document], tmp_path: Path) -> None:
    path = tmp_path / "corpus.npz"
    tokens = write(path, documents[:-10], documents[-10:], 600, {"seed": 7})
    with np.load(path, allow_pickle=False) as arrays:
        assert len(arrays["ids"]) == tokens == arrays["lengths"].sum() == len(arrays["weights"])
        assert len(arrays["role"]) == len(documents) - 10
        assert arrays["ids"].dtype == np.uint16
        assert set(np.unique(arrays["weights"]).tolist()) == {float(np.float16(0.2)), 1.0}
        assert "sha256" in json.loads(arrays["meta"].tobytes())


def test_the_command_writes_what_a_training_reads(tmp_path: Path) -> None:
    out = tmp_path / "corpus.npz"
    command = [
        sys.executable,
        "-m",
        "labs.pocket.corpus",
        str(out),
        "--episodes",
        "30",
        "--held-out",
        "3",
        "--workers",
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    corpus = read_corpus(out, context=CONTEXT)
    assert corpus.meta is not None
    assert (corpus.meta["episodes"], corpus.meta["held_out"]) == (30, 3)
    assert "documents" in done.stdout
