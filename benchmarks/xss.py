"""Payloads that would run a script where a page forgot to escape, and a workspace in which they stand everywhere.

Each payload calls `fired(n)` or shows a dialog when it runs. Vectors are the classic ones (tags, attributes, URLs,
breaking out of text areas, script blocks and attributes), and those of this page's own tools: templates, htmx
attributes and the JSON of its charts.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from urllib.parse import quote

from evolve.config.model import Config
from evolve.gates.review_queue import submit
from evolve.generations.workspace_registry import FOLDER
from evolve.loop.assembly import open_store
from evolve.loop.runs import DONE, RunRecord, save_run
from evolve.training import ledger, rollout_store
from memory.records import (
    Check,
    DeltaOp,
    Insight,
    Op,
    Outcome,
    Provenance,
    Reflection,
    Status,
    Step,
    StopReason,
    Task,
    Trajectory,
)
from policies.protocols import Message

VECTORS = (
    "<script>fired()</script>",
    "<img src=x onerror=fired()>",
    "<svg onload=fired()>",
    "<svg><animate onbegin=fired() attributeName=x dur=1s>",
    "<iframe srcdoc='<script>parent.fired()</script>'></iframe>",
    "<iframe src='javascript:parent.fired()'></iframe>",
    "<a href='javascript:fired()' id=x autofocus onfocus=fired()>x</a>",
    "<details open ontoggle=fired()>x</details>",
    "<input autofocus onfocus=fired()>",
    "<body onload=fired()>",
    "<style>@import 'http://evil.example/x.css';</style><link rel=stylesheet href=http://evil.example/x.css>",
    "<meta http-equiv=refresh content='0;url=javascript:fired()'>",
    "<base href='http://evil.example/'>",
    "<div hx-get='http://evil.example/' hx-trigger=load hx-on::load='fired()'>x</div>",
    '<div class=chart data-chart=\'{"x":[1],"series":[],"title":"<img src=x onerror=fired()>"}\'></div>',
    "<math><mtext></p><img src=x onerror=fired()>",
    "<object data='javascript:fired()'></object>",
    "<form action='http://evil.example/' id=y><button autofocus formaction='javascript:fired()'>x</button></form>",
    "<marquee onstart=fired()>x</marquee>",
    "<video><source onerror=fired()></video>",
)
FRAMES = (
    "{}",
    '">{}',
    "'>{}",
    "</textarea></pre></title></script>{}",
    "{{{{ 7 * 7 }}}}{{% raw %}}{}\\u003cscript\\u003e",
)
PAYLOADS = tuple(frame.format(vector) for frame, vector in product(FRAMES, VECTORS))
"""One hundred."""

WATCH = "window.fired = () => { window.ran = (window.ran || 0) + 1; }; window.alert = window.fired;"
"""Runs before each page's own scripts and counts signs of life."""


def plant(folder: Path) -> int:
    """Let every payload stand in task text, observations, bullets, notes' origin, skills, rollouts and names.

    Return how many records hold one.
    """
    config = Config(root=folder)
    with open_store(config, owner=False) as store:
        save_run(
            store,
            RunRecord(
                run_id="run-planted",
                name=PAYLOADS[2],
                tags=PAYLOADS[3:6],
                status=DONE,
                mode="online",
                environment=PAYLOADS[0],
                policy=PAYLOADS[1],
            ),
        )
        bullets: list[DeltaOp] = []
        for at, payload in enumerate(PAYLOADS):
            trajectory = _episode(at, payload)
            store.add_trajectory(trajectory)
            store.add_reflection(_reflection(trajectory, payload))
            bullets += _ops(at, payload, trajectory)
        commit = store.commit(config.memory.namespace, bullets, actor=PAYLOADS[2])
        submit(store, config.memory.namespace, PAYLOADS[3], [_bullet(f"wait {payload}") for payload in PAYLOADS[:40]])
    training = config.workspace / FOLDER / ledger.FOLDER / TRAINING
    training.mkdir(parents=True)
    ledger.append(training / ledger.METRICS, {"iteration": 0, "loss": 1.0, PAYLOADS[0]: 1.0})
    rollout_store.write(training, 0, [_rollout(at, payload) for at, payload in enumerate(PAYLOADS)])
    return len(commit.applied)


TRAINING = "planted"
ROLLOUTS = tuple(f"/rollouts/{TRAINING}/{quote(f'{at}/{payload}', safe='')}" for at, payload in enumerate(PAYLOADS))
"""Pages of the training's rollouts."""


def _rollout(at: int, payload: str) -> rollout_store.StoredRollout:
    step = Step(index=0, action=payload, observation=payload, reply=payload + " ", error=payload)
    turn = rollout_store.RolloutTurn(steps=(step, step), tokens=1, version=payload, advantage=at / 100)
    return rollout_store.StoredRollout(
        id=f"{at}/{payload}",
        iteration=0,
        task=payload,
        group=payload,
        position=0,
        rollout=at,
        rewards={payload: 1.0},
        success=at % 2 == 0,
        graded=at % 3 > 0,
        stop=StopReason.DONE,
        error=payload,
        prompt=(Message(role="user", content=payload),),
        turns=(turn,),
    )


def _episode(at: int, payload: str) -> Trajectory:
    return Trajectory(
        id=f"planted-{at}",
        task=Task(id=f"task {at} {payload}", instruction=payload, environment="office"),
        steps=(Step(index=0, action=payload, observation=payload, reply=payload + " ", error=payload),),
        outcome=Outcome(success=at % 2 == 0, reward=0.0, checks=(Check(name=payload, passed=False, detail=payload),)),
        run_id="run-planted",
        error=payload if at % 3 == 0 else None,
        policy=payload,
        policy_version=payload,
    )


def _reflection(trajectory: Trajectory, payload: str) -> Reflection:
    return Reflection(
        trajectory_id=trajectory.id,
        task_id=trajectory.task.id,
        root_cause=payload,
        insights=(Insight(content=payload),),
        raw=payload,
        parsed=False,
        author=payload,
    )


def _ops(at: int, payload: str, trajectory: Trajectory) -> list[DeltaOp]:
    """Return a bullet and a skill that the episode taught; the skill carries the payload in its docstring."""
    origin = Provenance(trajectory_ids=(trajectory.id,), task_ids=(trajectory.task.id,), author=payload, source=payload)
    said = payload.replace("\\", "\\\\").replace('"""', "'''").rstrip('"')
    source = f'def planted_{at}(x: int) -> int:\n    """{said} ."""\n    # {said}\n    return x\n'
    skill = DeltaOp(op=Op.ADD, kind="skill", payload={"source": source}, status=Status.ACTIVE, provenance=origin)
    return [_bullet(f"rule {at} {payload}").model_copy(update={"provenance": origin}), skill]


def _bullet(text: str) -> DeltaOp:
    return DeltaOp(op=Op.ADD, payload={"content": text, "section": text[:60]}, status=Status.ACTIVE, reason=text)
