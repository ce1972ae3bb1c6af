"""Check that a vLLM server can take the adapters of TRL's async trainer, before anything is loaded or rolled out."""

from __future__ import annotations

from typing import Any

import httpx

from policies.errors import PolicyRefused, PolicyUnavailable

NAME = "trl-policy"
"""TRL publishes the adapter of version n as `trl-policy-v{n}`."""
POST_ONLY = 405
START = "start it with VLLM_SERVER_DEV_MODE=1 evolve policy serve"


def adapter_name(version: int) -> str:
    """Return the name under which a version is served."""
    return f"{NAME}-v{version}"


def version_of(name: str) -> int:
    """Return the version that a name says."""
    return int(name.removeprefix(f"{NAME}-v"))


def require_server(root: str) -> int:
    """Return the newest version that is loaded on the server at `root`, 0 where there is none.

    A name is never used for two adapters (vllm#42125), so that a training counts on from there. Raises
    `PolicyUnavailable` where no server answers, `PolicyRefused` for one that cannot load adapters while it runs.
    """
    with httpx.Client(base_url=root, trust_env=False, timeout=30.0) as client:
        _asked(client, "/health", "answers")
        info = _asked(client, "/server_info", "tells how it was started", config_format="json").json()
        if info["vllm_config"]["lora_config"] is None:
            raise PolicyRefused(f"the server at {root} was started without --enable-lora; {START}")
        if client.get("/v1/load_lora_adapter").status_code != POST_ONLY:
            raise PolicyRefused(
                f"the server at {root} cannot load adapters while it runs (VLLM_ALLOW_RUNTIME_LORA_UPDATING=1); {START}"
            )
        cards: list[dict[str, Any]] = _asked(client, "/v1/models", "lists its models").json()["data"]
    names = (str(card["id"]) for card in cards)
    return max((version_of(name) for name in names if name.startswith(f"{NAME}-v")), default=0)


def _asked(client: httpx.Client, path: str, does: str, **query: str) -> httpx.Response:
    root = str(client.base_url)
    try:
        answer = client.get(path, params=query)
    except httpx.HTTPError as error:
        raise PolicyUnavailable(
            f"no vLLM server answers at {root} ({type(error).__name__}), which policy.base_url names; {START}"
        ) from None
    if not answer.is_success:
        raise PolicyRefused(f"got HTTP {answer.status_code} for {path} of {root}, expected a vLLM that {does}; {START}")
    return answer
