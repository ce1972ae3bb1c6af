"""The examples of `deploy/`, as far as no cluster is here: what they start exists, and nothing stands open.

D1  every command of ours in them is one that the command line takes, with its options
D2  images are pinned, only `serve` is published, on loopback, and no password stands in a file
D3  the settings that they mount are read, and name what the services are called; so do those that are commented out
D4  their own tools read them, where those are installed; the manifests are valid by Kubernetes' schemas. No package has
    KubeRay's: its pods are Kubernetes' own, and what is around them was read in the definition of ray.io/v1
D5  what drives a Ray cluster is a node of it, and goes on with its run when it is started again; Ray's pods are asked
    what the image can answer
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer.main
import yaml

from evolve.cli.main import app
from evolve.config.file import load_config
from evolve.workspace.config_check import check_names

RAY_NODE = {"app": "evolve-ray"}
DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
MANIFESTS: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
TEXTS = {file.name: file.read_text() for file in DEPLOY.iterdir() if file.is_file()}


def commands() -> Iterator[list[str]]:
    """Yield each command of ours: in the services, the manifests, the image, and the comments that say how."""
    for service in COMPOSE["services"].values():
        yield service.get("command", [])
    for container in containers():
        yield container.get("command", [])
    for text in TEXTS.values():
        yield from (found.split() for found in re.findall(r"\bevolve (?:serve|run|tokens) ?[^\n\"\]`,]*", text))


def manifest(kind: str) -> dict[str, Any]:
    """Return the only manifest of a kind."""
    (found,) = [each for each in MANIFESTS if each["kind"] == kind]
    return found


def containers() -> Iterator[dict[str, Any]]:
    """Yield the containers of all manifests, wherever they stand."""

    def within(value: Any) -> Iterator[dict[str, Any]]:
        if isinstance(value, dict):
            for name, child in value.items():
                if name == "containers":
                    yield from child
                else:
                    yield from within(child)
        elif isinstance(value, list):
            for child in value:
                yield from within(child)

    yield from within(MANIFESTS)


def test_what_they_start_is_there() -> None:
    root, seen = typer.main.get_command(app), 0
    for command in commands():
        if command[:1] != ["evolve"]:
            continue
        words = [word.strip("'") for word in command[1:]]
        context, group = root.make_context("evolve", list(words), resilient_parsing=True), root
        while hasattr(group, "commands") and words:
            group = group.commands[words.pop(0)]
        options = {name for parameter in group.params for name in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= options, command
        assert context is not None
        seen += 1
    assert seen >= 7


def test_images_are_pinned_and_only_the_guarded_port_is_open() -> None:
    images = [each["image"] for each in (*COMPOSE["services"].values(), *containers())]
    assert {image for image in images if not re.fullmatch(r"[\w./-]+:v?\d[\w.-]*", image)} == {"evolve:local"}
    published = {name: each["ports"] for name, each in COMPOSE["services"].items() if "ports" in each}
    assert published == {"serve": ["127.0.0.1:8765:8765"]}
    assert [each["spec"].get("type", "ClusterIP") for each in MANIFESTS if each["kind"] == "Service"] == ["ClusterIP"]
    assert all(each["securityContext"]["runAsNonRoot"] for each in containers())
    for name, text in TEXTS.items():
        assert not re.findall(r"PASSWORD[=:]\s*[\"']?(?!\$|\.\.\.)\w", text), name
    assert any(each["kind"] == "NetworkPolicy" for each in MANIFESTS)


def test_the_settings_are_read_and_name_the_services(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DEPLOY)
    config = load_config(DEPLOY / "evolve.toml")
    check_names(config)
    host = re.match(r"postgresql://(\w+)@(\w+):\d+/(\w+)", config.memory.database)
    assert host is not None
    postgres = COMPOSE["services"]["postgres"]["environment"]
    assert host.groups() == (postgres["POSTGRES_USER"], "postgres", postgres["POSTGRES_DB"])
    assert COMPOSE["services"]["run"]["environment"]["RAY_ADDRESS"] == "ray-head:6379"
    (run,) = manifest("Job")["spec"]["template"]["spec"]["containers"]
    address = f"{manifest('RayCluster')['metadata']['name']}-head-svc:6379"
    assert run["env"] == [{"name": "RAY_ADDRESS", "value": address}]


def test_what_drives_the_cluster_is_a_node_of_it_and_goes_on_with_its_run() -> None:
    job = manifest("Job")["spec"]
    drivers = {"compose": COMPOSE["services"]["run"], "kubernetes": job["template"]["spec"]["containers"][0]}
    for where, driver in drivers.items():
        shell, option, script = driver["command"]
        assert (shell, option) == ("bash", "-c"), where
        begun, _, ran = script.partition("exec ")
        assert re.search(r"ray start --address (ray-head:6379|\"\$RAY_ADDRESS\") --num-cpus 0\b", begun), where
        assert ran.strip() == "evolve run --resume", where
    others = {name for name, each in COMPOSE["services"].items() if "RAY_ADDRESS" in each.get("environment", {})}
    assert others == {"run"}
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    ended = [rule["onExitCodes"]["values"] for rule in job["podFailurePolicy"]["rules"] if "onExitCodes" in rule]
    assert ended == [[3]], "a budget that is used up is not used once more"


def test_the_pods_of_ray_are_asked_what_the_image_can_answer() -> None:
    spec = manifest("RayCluster")["spec"]
    locked = re.search(r"^ray==(\S+)", (DEPLOY.parent / "requirements.lock").read_text(), re.MULTILINE)
    assert locked is not None
    assert spec["rayVersion"] == locked[1]
    (workers,) = spec["workerGroupSpecs"]
    for group in (spec["headGroupSpec"], workers):
        (container,) = group["template"]["spec"]["containers"]
        for probe in ("livenessProbe", "readinessProbe"):
            assert container[probe]["exec"]["command"][:2] == ["bash", "-c"], "without it KubeRay takes its own"
        assert group["template"]["metadata"]["labels"].items() >= RAY_NODE.items()
    assert manifest("Job")["spec"]["template"]["metadata"]["labels"].items() >= RAY_NODE.items()
    assert manifest("NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == RAY_NODE


def test_every_node_of_ray_says_how_many_processors_it_has() -> None:
    """A container sees all processors of its host."""
    started = [each["command"] for each in COMPOSE["services"].values() if each.get("command", [""])[0] == "ray"]
    assert [command[command.index("--num-cpus") + 1] for command in started] == ["0", "4"]
    spec = manifest("RayCluster")["spec"]
    nodes = (spec["headGroupSpec"], *spec["workerGroupSpecs"])
    assert [group["rayStartParams"] for group in nodes] == [{"num-cpus": "0"}, {"num-cpus": "2"}]


def test_the_settings_that_are_commented_out_name_services_that_are_started_on_demand(tmp_path: Path) -> None:
    instead = dict(re.findall(r"^# (\w+) = (.*)$", TEXTS["evolve.toml"], re.MULTILINE))
    kept = [line for line in TEXTS["evolve.toml"].splitlines() if line.partition(" = ")[0] not in instead]
    (tmp_path / "evolve.toml").write_text(re.sub(r"^# (?=\w+ = )", "", "\n".join(kept), flags=re.MULTILINE))
    config = load_config(tmp_path / "evolve.toml")
    check_names(config)
    services = COMPOSE["services"]
    assert config.policy.base_url == "http://vllm:8000/v1"
    assert services["vllm"]["command"] == [config.policy.model, "--port", "8000"]
    assert config.memory.index.startswith("chroma-http:http://chroma:8000/")
    assert [services[name]["profiles"] for name in ("vllm", "chroma")] == [["vllm"], ["chroma"]]


def _optional(service: dict[str, Any]) -> list[str]:
    awaited = service.get("depends_on", {})
    return [name for name, how in awaited.items() if how.get("required") is False]


def test_every_server_of_compose_says_whether_it_is_well() -> None:
    services = COMPOSE["services"]
    assert {name for name, each in services.items() if "healthcheck" not in each} == {"ray-worker", "run"}
    awaited = {other for each in services.values() for other in each.get("depends_on", {})}
    assert awaited == {"postgres", "ray-head", "chroma", "vllm"}
    optional = [each for service in services.values() for each in _optional(service)]
    assert set(optional) == {"chroma", "vllm"}, "whoever does not start them waits for none"


def test_what_is_kept_in_a_volume_belongs_to_the_user_of_the_image() -> None:
    """A new volume takes its owner from the folder of the image; one that is not there is root's."""
    mounted = {
        volume.split(":")[1]
        for service in COMPOSE["services"].values()
        if service["image"] == "evolve:local"
        for volume in service["volumes"]
        if volume.split(":")[0] in COMPOSE["volumes"]
    }
    assert mounted == {"/workspace/.evolve"}
    made, _, after = TEXTS["Dockerfile"].partition("USER evolve")
    assert "mkdir -p /workspace/.evolve && chown -R evolve /workspace\n" in made
    assert "WORKDIR /workspace" in after


def test_compose_reads_its_file() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True).returncode:
        pytest.skip("`docker compose` is not installed")
    read = subprocess.run(
        [docker, "compose", "-f", str(DEPLOY / "compose.yaml"), "config", "--quiet"],
        env={"POSTGRES_PASSWORD": "x", "PATH": "/usr/bin:/usr/local/bin"},
        capture_output=True,
        text=True,
    )
    assert read.returncode == 0, read.stderr


FIELDS = {
    "spec": {"rayVersion", "headGroupSpec", "workerGroupSpecs"},
    "head": {"rayStartParams", "template"},
    "workers": {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"},
}
"""What of ray.io/v1 is used, of which `groupName`, both bounds and the templates are obligatory."""


def test_the_manifests_are_valid() -> None:
    latest = kubernetes_validate.latest_version()
    seen = []
    for each in MANIFESTS:
        seen.append(each["kind"])
        if each["kind"] != "RayCluster":
            kubernetes_validate.validate(each, latest, strict=True)
            continue
        spec = each["spec"]
        (workers,) = spec["workerGroupSpecs"]
        assert (each["apiVersion"], {*spec}) == ("ray.io/v1", FIELDS["spec"])
        assert ({*spec["headGroupSpec"]}, {*workers}) == (FIELDS["head"], FIELDS["workers"])
        for group in (spec["headGroupSpec"], workers):
            pods = {"apiVersion": "v1", "kind": "PodTemplate", "template": group["template"]}
            kubernetes_validate.validate(pods, latest, strict=True)
    assert sorted(seen) == ["Deployment", "Job", "NetworkPolicy", "RayCluster", "Service"]
