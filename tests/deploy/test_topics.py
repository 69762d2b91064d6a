from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from streammem.core.topics import RAW, TOPICS, USES, Topic
from streammem.settings import KafkaSettings
from streammem.workers.loop import group_of
from tests.deploy import files

MILLISECONDS = {"h": 3_600_000, "d": 86_400_000}
OUTSIDE = {"bridge", "exporter", "asker", "operator"}


def may(operation: str, topic: str) -> set[str]:
    return {name for name, rights in files.topics()["principals"].items() if topic in rights.get(operation, [])}


def retention(text: str) -> int | None:
    return None if text == "for ever" else int(text[:-1]) * MILLISECONDS[text[-1]]


def roles_in(text: str) -> set[str]:
    """The roles that a topic's writers or readers name."""
    return set(files.READERS) if "every role that reads" in text else set(re.findall(r"\w+", text)) & set(files.ROLES)


def test_the_list_of_topics_is_the_one_that_is_created() -> None:
    assert list(files.topics()["topics"]) == [topic.name for topic in TOPICS]


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.short)
def test_topics_are_kept_as_the_list_says(topic: Topic) -> None:
    listed = files.topics()["topics"][topic.name]
    assert listed["cleanup"] == topic.cleanup
    assert retention(listed["retention"]) == topic.retention
    assert listed["partitions"] == KafkaSettings().partitions


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.short)
def test_roles_may_write_and_read_what_they_do_write_and_read(topic: Topic) -> None:
    assert may("write", topic.name) - OUTSIDE == roles_in(topic.writers)
    assert may("read", topic.name) - OUTSIDE == roles_in(topic.readers)


def test_each_role_may_join_its_own_group_and_no_other() -> None:
    principals = files.topics()["principals"]
    assert {name: rights["group"] for name, rights in principals.items() if "group" in rights} == {
        role: group_of("", role) for role in files.READERS
    }


def test_who_may_write_what_would_be_believed() -> None:
    assert may("write", "memory.log.v1") == {"ingest"}
    assert may("write", "memory.queries.v1") == {"asker"}
    assert may("write", "memory.answers.v1") == {"query"}
    assert may("read", "memory.answers.v1") == {"asker"}


@pytest.mark.parametrize("name", ["receive", "bridge"])
def test_who_brings_raw_payloads_adds_them_and_does_nothing_else(name: str) -> None:
    assert files.topics()["principals"][name] == {"write": [topic.name for topic in RAW]}


@pytest.mark.parametrize("role", files.ROLES)
def test_a_role_may_read_or_write_each_topic_that_it_uses(role: str) -> None:
    rights = files.topics()["principals"][role]
    assert {*rights.get("read", ()), *rights.get("write", ())} == {topic.name for topic in USES[role]}


def test_exporters_write_the_input_and_read_nothing() -> None:
    assert files.topics()["principals"]["exporter"] == {"write": ["chat.messages.v1", "chat.directory.v1"]}


def test_the_script_grants_what_the_table_says(tmp_path: Path) -> None:
    granted = grants(tmp_path)
    for name, rights in files.topics()["principals"].items():
        found = granted.pop(f"User:streammem-{name}")
        assert found.pop("Write --topic", set()) == set(rights.get("write", []))
        assert found.pop("Read --topic", set()) == set(rights.get("read", []))
        if "group" in rights:
            assert found.pop("Read --group") == {rights["group"]}
        if rights.get("creates"):
            assert found.pop("Describe --group") == {"streammem-"}
            assert found.pop("Create --topic") == set(files.topics()["topics"])
            found = {key: value for key, value in found.items() if not re.match("(Describe|Alter)", key)}
        assert not found
    assert not granted


def test_the_prefix_goes_before_topics_and_groups(tmp_path: Path) -> None:
    rights = [things for found in grants(tmp_path, PREFIX="team.").values() for things in found.values()]
    assert all(name.startswith("team.") for things in rights for name in things)


def grants(folder: Path, **environment: str) -> dict[str, dict[str, set[str]]]:
    """What the script asks kafka-acls.sh for: principal -> "Operation --resource" -> names."""
    fake = folder / "kafka-acls.sh"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\n')
    fake.chmod(0o755)
    subprocess.run(
        [files.DEPLOY / "acls.sh"], check=True, env={"PATH": "/usr/bin:/bin", "KAFKA_ACLS": str(fake), **environment}
    )
    granted: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for line in (folder / "asked").read_text().splitlines():
        options = list(pairwise(line.split()))
        (principal,) = [value for option, value in options if option == "--allow-principal"]
        for operation in [value for option, value in options if option == "--operation"]:
            for option, name in options:
                if option in {"--topic", "--group"}:
                    granted[principal][f"{operation} {option}"].add(name)
    return granted
