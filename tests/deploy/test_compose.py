from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import pytest

from streammem.settings import WorkerSettings
from tests.deploy import files
from tests.servers import kafka_server

SERVERS = ("kafka", "redis", "qdrant")


def test_each_role_has_a_service_and_every_worker_is_a_role() -> None:
    workers = {name: service["command"] for name, service in files.own_services().items() if "restart" in service}
    assert workers == {role: ["worker", role] for role in files.ROLES}


@pytest.mark.parametrize("name", files.services())
def test_images_are_pinned_to_one_version(name: str) -> None:
    assert re.search(r":v?\d+\.\d+\.\d+(-[a-z]+)?$", files.services()[name]["image"])


@pytest.mark.parametrize("name", files.services())
def test_ports_are_published_on_the_loopback_only(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in files.services()[name].get("ports", []))


def test_redis_and_qdrant_are_on_an_inner_network_only() -> None:
    assert files.compose()["networks"]["stores"] == {"internal": True}
    assert {name: files.services()[name]["networks"] for name in ("redis", "qdrant")} == {
        "redis": ["stores"],
        "qdrant": ["stores"],
    }


@pytest.mark.parametrize("role", files.READERS)
def test_workers_reach_nothing_but_the_servers_and_the_language_model_where_summaries_are_written(role: str) -> None:
    language_model = ["outside"] if role in ("summarize", "query") else []
    assert files.services()[role]["networks"] == ["stores", *language_model]
    assert "ports" not in files.services()[role]


def test_the_receiver_is_reached_where_it_listens() -> None:
    settings = files.environment(files.DEPLOY / "compose.env")
    assert settings["STREAMMEM_RECEIVE__HOST"] == "0.0.0.0"
    assert files.services()["receive"]["networks"] == ["outside"]
    assert "outside" in files.services()["kafka"]["networks"]
    (port,) = files.services()["receive"]["ports"]
    assert port.rpartition(":")[2] == settings["STREAMMEM_RECEIVE__PORT"]


def test_the_receiver_that_does_not_start_without_a_secret_is_started_only_when_it_is_asked_for() -> None:
    assert files.services()["receive"]["profiles"] == ["receive"]
    assert not [role for role in files.READERS if "profiles" in files.services()[role]]


@pytest.mark.parametrize("name", files.services())
def test_services_have_no_rights_that_they_do_not_need(name: str) -> None:
    service = files.services()[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service.get("read_only", False) is (name != "kafka")
    assert not service.get("privileged")
    assert "memory" in service["deploy"]["resources"]["limits"]


@pytest.mark.parametrize("name", SERVERS)
def test_servers_keep_their_data_and_say_when_they_are_ready(name: str) -> None:
    service = files.services()[name]
    volumes = [volume.split(":")[0] for volume in service["volumes"]]
    assert set(volumes) <= set(files.compose()["volumes"])
    assert service["healthcheck"]["test"]
    assert service["restart"] == "unless-stopped"


@pytest.mark.parametrize("role", files.ROLES)
def test_workers_start_when_the_servers_are_ready_and_the_topics_are_there(role: str) -> None:
    waited = {name: wait["condition"] for name, wait in files.services()[role]["depends_on"].items()}
    assert {"kafka", "topics"} | ({"redis"} if role in files.READERS else set()) <= set(waited)
    for name, condition in waited.items():
        once = name in {"topics", "model"}
        assert condition == ("service_completed_successfully" if once else "service_healthy")


@pytest.mark.parametrize("role", ["index", "summarize", "query"])
def test_workers_that_need_the_model_find_it_fetched_and_cannot_change_it(role: str) -> None:
    service = files.services()[role]
    assert {"model", "qdrant"} <= set(service["depends_on"])
    assert service["volumes"] == ["models:/models:ro"]
    assert files.services()["model"]["volumes"] == ["models:/models"]
    assert files.environment(files.DEPLOY / "compose.env")["STREAMMEM_EMBEDDING__CACHE"] == "/models"


@pytest.mark.parametrize("role", files.ROLES)
def test_workers_have_time_to_end_cleanly(role: str) -> None:
    assert seconds(files.services()[role]["stop_grace_period"]) > WorkerSettings().stop


@pytest.mark.parametrize("name", files.own_services())
def test_settings_come_from_a_file_and_secrets_from_another_that_need_not_be_there(name: str) -> None:
    first, second = files.own_services()[name]["env_file"]
    assert first["path"] == "deploy/compose.env"
    assert (files.ROOT / first["path"]).exists()
    assert second == {"path": "deploy/secrets.env", "required": False}
    assert "secrets.env" in (files.DEPLOY / ".gitignore").read_text().split()


def test_the_settings_name_the_servers_of_the_file() -> None:
    settings = files.environment(files.DEPLOY / "compose.env")
    kafka = files.services()["kafka"]["environment"]
    assert f"INTERNAL://{settings['STREAMMEM_KAFKA__BOOTSTRAP']}" in kafka["KAFKA_ADVERTISED_LISTENERS"].split(",")
    assert urlsplit(settings["STREAMMEM_REDIS__URL"]).hostname in files.services()
    assert urlsplit(settings["STREAMMEM_VECTORS__URL"]).hostname in files.services()


def test_the_broker_is_the_one_that_the_tests_run() -> None:
    assert files.services()["kafka"]["image"] == f"apache/kafka:{kafka_server.VERSION}"


def test_kafka_makes_no_topic_of_its_own() -> None:
    assert files.services()["kafka"]["environment"]["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"


def test_redis_writes_every_change_down_and_evicts_nothing() -> None:
    options = redis_options(files.services()["redis"])
    assert options["appendonly"] == "yes"
    assert options["appendfsync"] == "everysec"
    assert options["maxmemory-policy"] == "noeviction"


def redis_options(service: dict[str, Any]) -> dict[str, str]:
    words = service["command"][1:]
    return {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))
