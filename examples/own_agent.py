"""Memory and learning for an agent of your own: nothing of ours but a function.

    python examples/own_agent.py

The agent below talks to a shop that wants a greeting before each order, which nobody told the agent. Yours would be an
LLM with tools; this one is a few lines, so that the example runs anywhere. What it shows: `solve` gets the task and
what is known as text, does its work however it likes, and reports its steps. The rest happens around it (recall,
reflection, curation, gate, journal), without a model: `rules` reads the errors and what overcame them.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from evolve import Agent, Config, Outcome, Step, Task, Trajectory


class Shop:
    """Somebody else's system, with a rule that is in no manual."""

    def __init__(self) -> None:
        self.greeted = False

    def call(self, action: str) -> tuple[str, str | None]:
        """Return what the shop answered, and the error if it refused."""
        if action == "shop.greet()":
            self.greeted = True
            return "hello", None
        if not self.greeted:
            error = "RuntimeError: shop.greet() must be called before shop.order"
            return error, error
        return "ordered", None


def solve(task: Task, knowledge: str) -> Trajectory:
    """Order what the task names. Greets first when the knowledge says so, otherwise after being refused."""
    shop, steps = Shop(), list[Step]()
    item = task.instruction.removeprefix("Order ").rstrip(".")
    plan = ["shop.greet()", f"shop.order(item='{item}')"]
    if "shop.greet" not in knowledge:
        plan = [plan[1], *plan]
    for action in plan:
        answer, error = shop.call(action)
        steps.append(Step(index=len(steps), action=action, observation=answer, error=error))
    return Trajectory(task=task, steps=tuple(steps), outcome=Outcome(success=True, reward=1.0))


async def main() -> None:
    """Do six orders and print how many steps each took."""
    with tempfile.TemporaryDirectory() as folder:
        config = Config.model_validate(
            {
                "root": Path(folder),
                "run": {"batch_size": 2},
                "playbook": {"reflector": "rules", "curator": "direct"},
            }
        )
        goods = ["apples", "bread", "cheese", "dates", "eggs", "figs"]
        async with Agent(solve, config) as agent:
            for trajectory in await agent.run([f"Order {item}." for item in goods]):
                known = ", ".join(injection.label for injection in trajectory.injected) or "nothing"
                print(f"{trajectory.task.instruction:<15} {len(trajectory.steps)} steps, knew {known}")


if __name__ == "__main__":
    asyncio.run(main())
