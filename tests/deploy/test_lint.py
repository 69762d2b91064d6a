"""The tools of each language, as far as they need no container engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

from tests.deploy import files

YAML = """
extends: default
rules:
  line-length: {max: 130}
  document-start: disable
  braces: {max-spaces-inside: 1}
  comments: {min-spaces-from-content: 1}
"""


def run(*command: str, **environment: str) -> str:
    ended = subprocess.run(
        command, cwd=files.ROOT, capture_output=True, text=True, check=False, env={**_home(), **environment}
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def _home() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("COMPOSE_", "STREAMMEM_"))}


def compose_config(**environment: str) -> dict:
    docker = shutil.which("docker")
    plugin = docker and subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode == 0
    command = [docker, "compose"] if docker and plugin else [files.program("docker-compose")]
    return json.loads(run(*command, "--profile", "*", "config", "--format", "json", **environment))


def test_docker_compose_takes_the_file() -> None:
    assert set(compose_config()["services"]) == set(files.services())


def test_the_number_of_processes_and_the_port_can_be_set_from_outside() -> None:
    services = compose_config(INGEST_REPLICAS="3", STRUCTURE_REPLICAS="2", KAFKA_PORT="9192")["services"]
    assert services["ingest"]["deploy"]["replicas"] == 3
    assert services["structure"]["deploy"]["replicas"] == 2
    assert services["kafka"]["ports"][0]["published"] == "9192"
    assert "HOST://127.0.0.1:9192" in services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]


def test_the_compose_file_is_what_the_specification_says() -> None:
    run(files.program("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(files.COMPOSE))


def test_the_dockerfile_passes_hadolint() -> None:
    run(files.program("hadolint"), str(files.DEPLOY / "Dockerfile"))


def test_the_scripts_pass_shellcheck() -> None:
    run(files.program("shellcheck"), *map(str, files.DEPLOY.glob("*.sh")))


def test_the_yaml_passes_yamllint() -> None:
    run(files.program("yamllint"), "--strict", "--config-data", YAML, str(files.COMPOSE), str(files.DEPLOY))


@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_kubernetes_takes_the_manifests(version: str) -> None:
    run(files.program("kubernetes-validate"), "--strict", "-k", version, *map(str, (*files.MANIFESTS, *files.OPTIONAL)))
