from __future__ import annotations

import re
import tomllib

import yaml

from tests.deploy import files

DOCKERFILE = (files.DEPLOY / "Dockerfile").read_text()
STAGES = re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)


def version() -> str:
    return tomllib.loads((files.ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_every_stage_is_pinned_or_made_from_another() -> None:
    names = [name for _, name in STAGES]
    assert len(STAGES) == len(re.findall(r"^FROM ", DOCKERFILE, re.MULTILINE))
    assert all(base in names or re.fullmatch(r"python:3\.11\.\d+-slim-bookworm", base) for base, _ in STAGES)


def test_it_runs_as_a_numbered_user_that_is_not_root() -> None:
    (user,) = re.findall(r"^USER (\d+):\d+$", DOCKERFILE, re.MULTILINE)
    assert int(user) > 0
    assert {pod["securityContext"]["runAsUser"] for pod in files.pods().values()} == {int(user)}


def test_it_has_the_clients_of_the_servers() -> None:
    assert "pip install --no-cache-dir '.[stream]'" in DOCKERFILE


def test_it_is_the_command_line() -> None:
    assert 'ENTRYPOINT ["streammem"]' in DOCKERFILE


def test_the_image_that_compose_runs_is_the_one_it_builds() -> None:
    names = [name for _, name in STAGES]
    for service in files.own_services().values():
        assert service["image"] == f"streammem:{version()}"
        assert (files.ROOT / service["build"]["dockerfile"]).samefile(files.DEPLOY / "Dockerfile")
        assert service["build"]["target"] == names[-1]


def test_all_files_name_the_same_version() -> None:
    assert f"ARG VERSION={version()}\n" in DOCKERFILE
    customization = yaml.safe_load((files.DEPLOY / "kubernetes" / "kustomization.yaml").read_text())
    assert customization["images"] == [{"name": "streammem-offline", "newTag": version()}]


def test_the_builder_is_sent_what_is_copied_and_little_else() -> None:
    lines = (files.DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    sent = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    assert "*" in lines
    assert sent == {name.removeprefix("./") for names in copied for name in names.split()}
