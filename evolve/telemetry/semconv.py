"""The names of spans, attributes and metrics. GenAI semantic conventions (status: Development), and our own `evolve.*`.

They stand here because `opentelemetry.semconv._incubating` marks its copies as moved and deprecated.
"""

from __future__ import annotations

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT_NAME = "gen_ai.agent.name"
WORKFLOW_NAME = "gen_ai.workflow.name"
CONVERSATION = "gen_ai.conversation.id"
OUTPUT_TYPE = "gen_ai.output.type"
ERROR_TYPE = "error.type"

REQUEST_MODEL = "gen_ai.request.model"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_TOP_P = "gen_ai.request.top_p"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_SEED = "gen_ai.request.seed"
REQUEST_STOP = "gen_ai.request.stop_sequences"
RESPONSE_FINISH = "gen_ai.response.finish_reasons"

INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
TOKEN_TYPE = "gen_ai.token.type"

TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL = "gen_ai.tool.call.id"

STORE = "gen_ai.memory.store.id"
RECORD = "gen_ai.memory.record.id"
RECORDS = "gen_ai.memory.record.count"

EVALUATION = "gen_ai.evaluation.result"
"""Event: one grade, reward or verdict."""
EVALUATION_NAME = "gen_ai.evaluation.name"
SCORE = "gen_ai.evaluation.score.value"
LABEL = "gen_ai.evaluation.score.label"

# Content: set only where capturing is on, redacted.
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
QUERY = "gen_ai.memory.query.text"
MEMORIES = "gen_ai.memory.records"
CONTENT = frozenset({INPUT_MESSAGES, OUTPUT_MESSAGES, TOOL_ARGUMENTS, TOOL_RESULT, QUERY, MEMORIES})

RUN = "evolve.run.id"
MODE = "evolve.run.mode"
STATUS = "evolve.run.status"
TASK = "evolve.task.id"
ARM = "evolve.arm"
SNAPSHOT = "evolve.snapshot.id"
STOP = "evolve.stop"
STEPS = "evolve.steps"
STEP = "evolve.step.index"
REWARD = "evolve.reward"
SUCCESS = "evolve.success"
ROLLOUT = "evolve.rollout.id"
GROUP = "evolve.rollout.group_id"
POLICY_VERSION = "evolve.policy.version"
PLAYBOOK_VERSION = "evolve.playbook.version"
BULLETS = "evolve.playbook.bullet_ids"
DELTA_OP = "evolve.delta.op"
DELTA_ID = "evolve.delta.op_id"
REFUSED = "evolve.delta.refused"
ITERATION = "evolve.training.iteration"
ROWS = "evolve.training.rows"
FIGURE = "evolve.training."
"""Before the name of a training's figure, as `evolve train status` tells it."""
GATE = "evolve.gate.name"
DECISION = "evolve.gate.decision"

TOKEN_USAGE = "gen_ai.client.token.usage"
CALL_DURATION = "gen_ai.client.operation.duration"
AGENT_DURATION = "gen_ai.invoke_agent.duration"
TOOL_DURATION = "gen_ai.execute_tool.duration"
WORKFLOW_DURATION = "gen_ai.workflow.duration"
METRICS = {
    TOKEN_USAGE: ("{token}", "Tokens of one model call."),
    CALL_DURATION: ("s", "Time of one model call."),
    AGENT_DURATION: ("s", "Time of one episode."),
    TOOL_DURATION: ("s", "Time of one step of an environment."),
    WORKFLOW_DURATION: ("s", "Time of one run."),
}
"""Histogram -> unit, description."""
