"""An observer that keeps what a run tells."""

from __future__ import annotations

from evolve.progress import Notice, Progress, TaskDone


class Listener:
    """Keeps the notices of a run, and how far it came after each task."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.done: list[tuple[int, int]] = []
        """Tasks that are done, of so many."""

    def notify(self, event: Progress) -> None:
        if isinstance(event, Notice):
            self.heard.append(event.text)
        elif isinstance(event, TaskDone):
            self.done.append((event.done, event.total))
