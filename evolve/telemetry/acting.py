"""Spans of acting: episodes, model calls, steps. Pure functions with the parameters of what is watched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evolve.episode.journalled_replies import asked_about
from evolve.episode.rollout import Attempt, RolloutConfig
from evolve.protocols import Action, Episode, StepResult
from evolve.telemetry import semconv
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
            semconv.OPERATION: "invoke_agent",
            semconv.PROVIDER: provider(policy),
            semconv.AGENT_NAME: policy.name,
            semconv.CONVERSATION: attempt.id,
            semconv.TASK: attempt.task.id,
            semconv.ARM: attempt.arm,
            semconv.RUN: attempt.run_id,
            semconv.SNAPSHOT: attempt.snapshot_id,
            semconv.POLICY_VERSION: policy.version,
            semconv.GROUP: f"{attempt.run_id}/{attempt.task.id}",
        },
        _graded,
        metric=semconv.AGENT_DURATION,
    )


def solve(agent: Any, task: Task, context: Any) -> Begun:
    """Return the span of a task that the user's own agent works on."""
    del agent
    run_id = context.stream.run_id
    return Begun(
        "invoke_agent own",
        {
            semconv.OPERATION: "invoke_agent",
            semconv.AGENT_NAME: "own",
            semconv.TASK: task.id,
            semconv.RUN: run_id,
            semconv.GROUP: f"{run_id}/{task.id}",
        },
        _graded,
        metric=semconv.AGENT_DURATION,
    )


def _graded(found: Trajectory) -> Noted:
    outcome = found.outcome
    attributes = {
        semconv.ROLLOUT: found.id,
        semconv.INPUT_TOKENS: found.usage.prompt_tokens,
        semconv.OUTPUT_TOKENS: found.usage.completion_tokens,
        semconv.BULLETS: [item.record_id for item in found.injected],
        semconv.STEPS: len(found.steps),
        semconv.STOP: found.stop.value,
        semconv.SUCCESS: found.success,
        semconv.REWARD: outcome.reward if outcome else None,
        semconv.ERROR_TYPE: raised(found.error),
    }
    grades = [("reward", outcome.reward, outcome.success)] if outcome else []
    grades += [(check.name, float(check.passed), check.passed) for check in outcome.checks] if outcome else []
    return Noted(attributes, [evaluation(name, score, "pass" if good else "fail") for name, score, good in grades])


def chat(policy: WrappedPolicy, messages: Sequence[Message], params: SamplingParams) -> Begun:
    """Return the span of one model call."""
    return Begun(
        f"chat {policy.name}",
        {
            semconv.OPERATION: "chat",
            semconv.PROVIDER: provider(policy),
            semconv.REQUEST_MODEL: policy.name,
            semconv.REQUEST_TEMPERATURE: params.temperature,
            semconv.REQUEST_TOP_P: params.top_p,
            semconv.REQUEST_MAX_TOKENS: params.max_tokens,
            semconv.REQUEST_SEED: params.seed,
            semconv.REQUEST_STOP: list(params.stop) or None,
            semconv.OUTPUT_TYPE: "json" if params.response_schema else "text",
            semconv.TASK: asked_about() or None,
            semconv.POLICY_VERSION: policy.version,
            semconv.INPUT_MESSAGES: lambda: [_message(message) for message in messages],
        },
        _replied,
        client=True,
        metric=semconv.CALL_DURATION,
    )


def _replied(reply: Reply) -> Noted:
    usage = reply.usage

    def said() -> list[dict[str, Any]]:
        message = Message(role="assistant", content=reply.text, tool_calls=reply.tool_calls)
        return [{**_message(message), "finish_reason": reply.finish_reason}]

    return Noted(
        {
            semconv.INPUT_TOKENS: usage.prompt_tokens,
            semconv.OUTPUT_TOKENS: usage.completion_tokens,
            semconv.CACHED_TOKENS: usage.cached_tokens or None,
            semconv.RESPONSE_FINISH: [reply.finish_reason],
            semconv.POLICY_VERSION: reply.policy_version or None,
            semconv.OUTPUT_MESSAGES: said,
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
            semconv.OPERATION: "execute_tool",
            semconv.TOOL_NAME: name,
            semconv.TOOL_TYPE: "function",
            semconv.TOOL_CALL: call.id if call else None,
            semconv.STEP: index,
            semconv.TASK: asked_about() or None,
            semconv.TOOL_ARGUMENTS: lambda: call.arguments if call else action.text,
        },
        _answered,
        metric=semconv.TOOL_DURATION,
    )


def _answered(result: StepResult) -> Noted:
    return Noted({semconv.ERROR_TYPE: raised(result.error), semconv.TOOL_RESULT: lambda: result.observation})


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
