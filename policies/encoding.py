"""Messages to token ids and back, for every policy that works on ids: in process, or served with ids in and ids out.

Needs no package: it is given a Hugging Face tokenizer (`policies.local.loading.load_encoder` makes one).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from policies.protocols import Message


class ChatEncoder:
    """A tokenizer with a chat template. `ends`: ids of the tokens that end a turn."""

    def __init__(self, tokenizer: Any, ends: Collection[int]) -> None:
        self.tokenizer = tokenizer
        self.ends = frozenset(ends)
        control = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
        self._special = tuple(sorted({*tokenizer.all_special_tokens, *control}, key=len, reverse=True))
        """What the tokenizer reads as control tokens; most models name two of theirs and mark the others alone."""

    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Return the prompt's token ids. Special tokens inside a message's text are broken up: text is data.

        What this policy sampled itself (`Message.token_ids`) is put in as it was, so that a conversation only grows at
        its end; not where the template rewrites earlier turns, nor where the ids say something else than the text.
        """
        chat = [{"role": message.role, "content": self._defused(message.content)} for message in messages]
        text, ids, done = self._rendered(chat), list[int](), 0
        for at, message in enumerate(messages):
            sampled = message.token_ids or ()
            if not sampled or self.decode(sampled) != chat[at]["content"]:
                continue
            before = self._rendered(chat[:at])
            if not text.startswith(before + chat[at]["content"]) or len(before) < done:
                break
            ids += [*self.tokens(text[done : len(before)]), *sampled]
            done = len(before) + len(chat[at]["content"])
            end = self.tokenizer.decode(sampled[-1:]) if sampled[-1] in self.ends else ""
            done += len(end) if text.startswith(end, done) else 0
        return (*ids, *self.tokens(text[done:]))

    def closing(self) -> tuple[int, ...]:
        """Return the id that ends an assistant's turn as the template writes one; empty where it writes none."""
        asked = {"role": "user", "content": "a"}
        before = self._rendered([asked]) + "b"
        told = [asked, {"role": "assistant", "content": "b"}]
        whole = self.tokenizer.apply_chat_template(told, tokenize=False, add_generation_prompt=False)
        after = self.tokens(whole.removeprefix(before))[:1] if whole.startswith(before) else []
        return tuple(token for token in after if token in self.ends)

    def tokens(self, text: str) -> list[int]:
        """Return the ids of a text on its own."""
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of ids, those that end a turn left out."""
        kept = [token for token in tokens if token not in self.ends]
        return self.tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def said(self, tokens: Sequence[int], stops: Sequence[str]) -> str:
        """Return the text of a completion up to the first stop string."""
        text = self.decode(tokens)
        return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]

    def stopper(self, stops: Sequence[str]) -> Callable[[Sequence[int]], bool]:
        """Return what tells from all ids of a completion whether a stop string was reached."""
        longest = max(map(len, stops))

        def reached(tokens: Sequence[int]) -> bool:
            tail = self.decode(tokens[-4 * longest - 8 :])
            return any(stop in tail for stop in stops)

        return reached

    def _rendered(self, chat: Sequence[dict[str, str]]) -> str:
        return self.tokenizer.apply_chat_template(list(chat), tokenize=False, add_generation_prompt=True)

    def _defused(self, text: str) -> str:
        for token in self._special:
            text = text.replace(token, f"{token[0]} {token[1:]}")
        return text
