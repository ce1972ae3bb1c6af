"""An observer that keeps the notices of a run."""

from __future__ import annotations

from evolve.progress import Notice, Progress


class Listener:
    """Keeps the notices of a run."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def notify(self, event: Progress) -> None:
        if isinstance(event, Notice):
            self.heard.append(event.text)
