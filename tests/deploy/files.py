"""What is deployed, read from the files that deploy it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = ROOT / "docker-compose.yml"
MANIFESTS = sorted(path for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml")
OPTIONAL = sorted((DEPLOY / "kubernetes").glob("*/*.yaml"))
"""Manifests that are applied only where somebody adds them."""
ROLES = ("receive", "connect", "ingest", "structure", "index", "summarize", "query")
READERS = tuple(role for role in ROLES if role != "receive")
"""The roles that work off topics or the store, and keep signs of life in Redis."""


@cache
def compose() -> dict[str, Any]:
    """docker-compose.yml with its anchors followed; ${...} stay as they are."""
    return yaml.safe_load(COMPOSE.read_text())


def services() -> dict[str, Any]:
    return compose()["services"]


def own_services() -> dict[str, Any]:
    """The services that run streammem."""
    return {name: service for name, service in services().items() if service["image"].startswith("streammem:")}


@cache
def objects() -> tuple[dict[str, Any], ...]:
    """Every object of the manifests."""
    return tuple(found for path in MANIFESTS for found in yaml.safe_load_all(path.read_text()))


def pods() -> dict[str, Any]:
    """The pod of every Deployment and Job, by the name of what it does."""
    found = [thing["spec"]["template"] for thing in objects() if thing["kind"] in {"Deployment", "Job"}]
    return {pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod["spec"] for pod in found}


@cache
def topics() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "topics.yaml").read_text())


def environment(path: Path) -> dict[str, str]:
    """The variables of a file of NAME=VALUE lines."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def texts() -> Iterator[tuple[Path, str]]:
    """Every file that deploys something."""
    for path in (COMPOSE, *sorted(DEPLOY.rglob("*"))):
        if path.is_file():
            yield path, path.read_text()


def typed_commands() -> list[str]:
    """The commands that comments tell people to type."""
    typed = re.findall(r"docker compose run --rm (?:-v \S+ |-v \"[^\"]*\" )?streammem (.+)", COMPOSE.read_text())
    return [re.split(r" {3,}", command)[0] for command in typed if not command.startswith("...")]


def program(*names: str) -> str:
    """A tool that checks: beside this Python or on the path. Missing it means skip at home and fail in CI."""
    for name in names:
        if found := shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name):
            return found
    if os.environ.get("CI"):
        pytest.fail(f"{names[0]} is not here: it comes with the extra `dev`")
    pytest.skip(f"{names[0]} is not here")
