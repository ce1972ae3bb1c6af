"""The documents of the corpus: what a range of episodes teaches; the same range gives the same in any process."""

from __future__ import annotations

from dataclasses import dataclass

from evolve.environments.office.house_rules import draw, seeded
from labs.pocket.corpus.expert_episodes import Played, play
from labs.pocket.corpus.pack import Document
from labs.pocket.corpus.perfect_lessons import curate_document, lessons, reflect_document
from labs.pocket.corpus.setting import FIRST_DEPLOYMENT, LAST_DEPLOYMENT, draw_setting
from policies.protocols import Message

_REFLECT_ON_LESSON, _REFLECT_ON_NOTHING = 0.8, 0.08
_CURATE = 0.7


@dataclass(frozen=True)
class Share:
    """A range of episode numbers under one seed."""

    seed: int
    start: int
    count: int


def make(share: Share) -> list[Document]:
    """Return the documents of a share, in order of episode."""
    return [
        document for number in range(share.start, share.start + share.count) for document in one(share.seed, number)
    ]


def one(seed: int, number: int) -> list[Document]:
    """Return what episode `number` teaches: acting, sometimes reflecting on it, sometimes a curation."""
    rng = seeded("corpus", seed, number)
    deployment = rng.randint(FIRST_DEPLOYMENT, LAST_DEPLOYMENT)
    values = draw(deployment)
    played = play(draw_setting(rng, values, deployment), values, rng)
    documents = [Document("act", played.messages)]
    if rng.random() < (_REFLECT_ON_LESSON if _teaches(played) else _REFLECT_ON_NOTHING):
        documents.append(_document("reflect", *reflect_document(played, rng)))
    if rng.random() < _CURATE:
        documents.append(_document("curate", *curate_document(rng, values)))
    return documents


def _teaches(played: Played) -> bool:
    return bool(lessons(played))


def _document(role: str, prompt: list[Message], reply: str) -> Document:
    return Document(role, (*prompt, Message(role="assistant", content=reply)))
