"""Our own arms: one life each, through the same counting proxy. They differ in what may be kept alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers.ring import ADAPT, AGAIN, ANSWER, LIFE, Result, Ring
from benchmarks.real.lives import Life
from evolve.episode.arms import MAIN, NO_MEMORY

Sections = Mapping[str, Mapping[str, Any]]
ATTEMPTS = 3
"""Most attempts at a train task that failed; `run_gepa.py` grants its peer as many graded replies."""
OFF, DEFAULT, FRUGAL = "off", "default", "frugal"
_GATES: Sections = {"gate": {"names": ["default"], "calls_advance": 400}, "run": {"batch_size": 16}}
_ATTEMPTS: Sections = {**_GATES, "run": {"batch_size": 16, "attempts": ATTEMPTS}}
_EXEMPLARS: Sections = {"exemplars": {"enabled": True, "k": 3, "token_budget": 700}}
_SKILLS: Sections = {"skills": {"enabled": True}}
ARMS: Mapping[str, Sections] = {
    OFF: {"playbook": {"enabled": False}},
    DEFAULT: {},
    FRUGAL: {
        **_EXEMPLARS,
        "playbook": {"reflector": "none", "curator": "direct"},
        "run": {"batch_size": 16},
        "gate": {"names": ["static"]},
    },
    "exemplars": {**_ATTEMPTS, **_EXEMPLARS, "playbook": {"reflector": "none", "curator": "direct"}},
    "bullets": {**_GATES, "playbook": {"reflector": "model", "curator": "model"}},
    "skills": {**_ATTEMPTS, **_SKILLS, "playbook": {"reflector": "none", "curator": "distill"}},
    "all": {
        **_ATTEMPTS,
        **_EXEMPLARS,
        **_SKILLS,
        "playbook": {"reflector": "model", "curator": "model+distill"},
    },
}
"""`default` is what stands where nothing is configured. `frugal` is what the targets are about: solved tasks as
examples, each task tried once, no call for a gate, as the cheapest peers validate nothing either. As it was chosen
before any peer was measured, it tried failed tasks once more: its 448 calls were more than the 400 of the cheapest peer
(docs/LOG.md). The last four measure what they keep before they keep it, and differ in what that may be."""
_FAIR: Sections = {"controls": {"no_memory": 0.0}, "policy": {"timeout_s": 900.0}}
"""No call for a control while it adapts; a small machine may need minutes for one answer."""


def ours(ring: Ring, arm: str, section: Mapping[str, Any], *, again: bool = False) -> Result:
    """Let one of our arms adapt and answer; `again` answers once more (A/A). `section` is `[environment]`."""
    return ring.kept(arm, lambda folder: _lived(ring, arm, folder, section, again))


def _lived(ring: Ring, arm: str, folder: Path, section: Mapping[str, Any], again: bool) -> Result:
    def life(url: str) -> Life:
        given = merged(ARMS[arm], _FAIR, {"policy": {"max_tokens": ring.max_tokens}, "run": {"seed": ring.seed}})
        return Life(folder / LIFE, url, ring.model, section, given)

    learned = 0
    if arm != OFF:
        with ring.sitting(arm, ADAPT) as url:
            learned = life(url).learn(len(ring.train)).learned
    passed: dict[str, dict[str, bool]] = {}
    for phase in (ANSWER, AGAIN) if again else (ANSWER,):
        with ring.sitting(arm, phase) as url:
            found = life(url).examine(phase, len(ring.held_out))[NO_MEMORY if arm == OFF else MAIN]
        passed[phase] = {task.id: bool(found[task.id]) for task in ring.held_out}
    return Result(
        arm=arm,
        passed=passed[ANSWER],
        again=passed.get(AGAIN, {}),
        learned=learned,
        adapt=ring.used(arm, ADAPT),
        answer=ring.used(arm, ANSWER),
    )


def merged(*all_sections: Sections) -> dict[str, dict[str, Any]]:
    """Return sections key by key, the later ones above the earlier."""
    result: dict[str, dict[str, Any]] = {}
    for sections in all_sections:
        for name, keys in sections.items():
            result[name] = {**result.get(name, {}), **keys}
    return result
