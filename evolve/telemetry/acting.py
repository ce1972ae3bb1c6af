"""Spans of acting: episodes, model calls, steps. Pure functions with the parameters of what is watched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evolve.episode.replies import asked_about
from evolve.episode.rollout import Attempt, RolloutConfig
from evolve.protocols import Action, Episode, StepResult
from evolve.telemetry import names
from evolve.telemetry.described import Begun, Noted, evaluation, raised
from memory.records import Task, Trajectory
from policies.protocols import Message, Policy, Reply, SamplingParams
from policies.wrapped import WrappedPolicy


def episode(environment: Any, policy: Policy, attempt: Attempt, acting: RolloutConfig) -> Begun:
    """Return the span of one task being worked on."""
    del environment, acting
    return Begun(
        f"invoke_agent {policy.name}",
        {
            names.OPERATION: "invoke_agent",
            names.PROVIDER: provider(policy),
            names.AGENT_NAME: policy.name,
            names.CONVERSATION: attempt.id,
            names.TASK: attempt.task.id,
            names.ARM: attempt.arm,
            names.RUN: attempt.run_id,
            names.SNAPSHOT: attempt.snapshot_id,
            names.POLICY_VERSION: policy.version,
            names.GROUP: f"{attempt.run_id}/{attempt.task.id}",
        },
        _graded,
        metric=names.AGENT_DURATION,
    )


def solve(agent: Any, task: Task, context: Any) -> Begun:
    """Return the span of a task that the user's own agent works on."""
    del agent
    run_id = context.stream.run_id
    return Begun(
        "invoke_agent own",
        {
            names.OPERATION: "invoke_agent",
            names.AGENT_NAME: "own",
            names.TASK: task.id,
            names.RUN: run_id,
            names.GROUP: f"{run_id}/{task.id}",
        },
        _graded,
        metric=names.AGENT_DURATION,
    )


def _graded(found: Trajectory) -> Noted:
    outcome = found.outcome
    attributes = {
        names.ROLLOUT: found.id,
        names.INPUT_TOKENS: found.usage.prompt_tokens,
        names.OUTPUT_TOKENS: found.usage.completion_tokens,
        names.BULLETS: [item.record_id for item in found.injected],
        names.STEPS: len(found.steps),
        names.STOP: found.stop.value,
        names.SUCCESS: found.success,
        names.REWARD: outcome.reward if outcome else None,
        names.ERROR_TYPE: raised(found.error),
    }
    grades = [("reward", outcome.reward, outcome.success)] if outcome else []
    grades += [(check.name, float(check.passed), check.passed) for check in outcome.checks] if outcome else []
    return Noted(attributes, [evaluation(name, score, "pass" if good else "fail") for name, score, good in grades])


def chat(policy: WrappedPolicy, messages: Sequence[Message], params: SamplingParams) -> Begun:
    """Return the span of one model call."""
    return Begun(
        f"chat {policy.name}",
        {
            names.OPERATION: "chat",
            names.PROVIDER: provider(policy),
            names.REQUEST_MODEL: policy.name,
            names.REQUEST_TEMPERATURE: params.temperature,
            names.REQUEST_TOP_P: params.top_p,
            names.REQUEST_MAX_TOKENS: params.max_tokens,
            names.REQUEST_SEED: params.seed,
            names.REQUEST_STOP: list(params.stop) or None,
            names.OUTPUT_TYPE: "json" if params.response_schema else "text",
            names.TASK: asked_about() or None,
            names.POLICY_VERSION: policy.version,
            names.INPUT_MESSAGES: lambda: [_message(message) for message in messages],
        },
        _replied,
        client=True,
        metric=names.CALL_DURATION,
    )


def _replied(reply: Reply) -> Noted:
    usage = reply.usage

    def said() -> list[dict[str, Any]]:
        message = Message(role="assistant", content=reply.text, tool_calls=reply.tool_calls)
        return [{**_message(message), "finish_reason": reply.finish_reason}]

    return Noted(
        {
            names.INPUT_TOKENS: usage.prompt_tokens,
            names.OUTPUT_TOKENS: usage.completion_tokens,
            names.CACHED_TOKENS: usage.cached_tokens or None,
            names.RESPONSE_FINISH: [reply.finish_reason],
            names.POLICY_VERSION: reply.policy_version or None,
            names.OUTPUT_MESSAGES: said,
        },
        tokens={"input": usage.prompt_tokens, "output": usage.completion_tokens},
    )


def step(episode: Episode, action: Action, index: int) -> Begun:
    """Return the span of one step of an environment."""
    del episode
    call = action.tool_calls[0] if action.tool_calls else None
    name = call.name if call else "environment"
    return Begun(
        f"execute_tool {name}",
        {
            names.OPERATION: "execute_tool",
            names.TOOL_NAME: name,
            names.TOOL_TYPE: "function",
            names.TOOL_CALL: call.id if call else None,
            names.STEP: index,
            names.TASK: asked_about() or None,
            names.TOOL_ARGUMENTS: lambda: call.arguments if call else action.text,
        },
        _answered,
        metric=names.TOOL_DURATION,
    )


def _answered(result: StepResult) -> Noted:
    return Noted({names.ERROR_TYPE: raised(result.error), names.TOOL_RESULT: lambda: result.observation})


def provider(policy: Policy) -> str:
    """Return who answers: the module of the policy inside all wrappers (`openai_server`, `local`, `scripted` ...)."""
    while isinstance(policy, WrappedPolicy):
        policy = policy.policy
    first, *rest = type(policy).__module__.split(".")
    return rest[0] if first == "policies" and rest else first


def _message(message: Message) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "text", "content": message.content}] if message.content else []
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    return {"role": message.role, "parts": parts}
