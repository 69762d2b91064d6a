from __future__ import annotations

import pytest
import yaml

from streammem.settings import WorkerSettings
from tests.deploy import files

CUSTOMIZATION = yaml.safe_load((files.DEPLOY / "kubernetes" / "kustomization.yaml").read_text())


def test_each_role_has_a_manifest_and_the_topics_a_job() -> None:
    assert {name: pod["containers"][0]["args"] for name, pod in files.pods().items()} == {
        "topics": ["topics", "create"],
        **{role: ["worker", role] for role in files.ROLES},
    }


def test_every_manifest_is_applied() -> None:
    assert sorted(CUSTOMIZATION["resources"]) == [path.name for path in files.MANIFESTS]


@pytest.mark.parametrize("name", files.pods())
def test_pods_have_no_rights_that_they_do_not_need(name: str) -> None:
    pod = files.pods()[name]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@pytest.mark.parametrize("name", files.pods())
def test_pods_say_what_they_need(name: str) -> None:
    for container in files.pods()[name]["containers"]:
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("name", files.pods())
def test_pods_read_the_settings_and_their_own_secret(name: str) -> None:
    (container,) = files.pods()[name]["containers"]
    settings, secret = container["envFrom"]
    (generated,) = CUSTOMIZATION["configMapGenerator"]
    assert settings["configMapRef"]["name"] == generated["name"]
    assert secret["secretRef"]["name"] == f"streammem-{name}"
    assert container["image"] == CUSTOMIZATION["images"][0]["name"]


@pytest.mark.parametrize("role", files.ROLES)
def test_pods_have_time_to_end_cleanly(role: str) -> None:
    assert files.pods()[role]["terminationGracePeriodSeconds"] > WorkerSettings().stop


def test_a_role_with_several_pods_keeps_some_while_nodes_are_drained() -> None:
    several = {
        thing["metadata"]["name"]
        for thing in files.objects()
        if thing["kind"] == "Deployment" and thing["spec"]["replicas"] > 1
    }
    guarded = {thing["metadata"]["name"] for thing in files.objects() if thing["kind"] == "PodDisruptionBudget"}
    assert several == guarded


def test_no_secret_is_among_the_manifests() -> None:
    assert "Secret" not in {thing["kind"] for thing in files.objects()}


def test_only_the_receiver_is_reached_and_only_by_its_port_and_it_reaches_no_store() -> None:
    policies = {
        thing["metadata"]["name"]: thing["spec"] for thing in files.objects() if thing["kind"] == "NetworkPolicy"
    }
    assert [name for name, spec in policies.items() if spec.get("ingress")] == ["streammem-receive"]
    port = int(files.environment(files.DEPLOY / "kubernetes" / "settings.env")["STREAMMEM_RECEIVE__PORT"])
    (reached,) = policies["streammem-receive"]["ingress"]
    assert [each["port"] for each in reached["ports"]] == [port]
    (container,) = files.pods()["receive"]["containers"]
    assert [each["containerPort"] for each in container["ports"]] == [port]
    for name in ("streammem-redis", "streammem-qdrant"):
        _, component = policies[name]["podSelector"]["matchExpressions"]
        assert "receive" not in component["values"]


def test_only_the_roles_that_work_with_vectors_reach_qdrant() -> None:
    (policy,) = [thing for thing in files.objects() if thing["metadata"]["name"] == "streammem-qdrant"]
    _, component = policy["spec"]["podSelector"]["matchExpressions"]
    assert set(component["values"]) == {"index", "summarize", "query"}


def test_only_what_writes_summaries_reaches_a_language_model_and_only_where_somebody_lets_it() -> None:
    (policy,) = [thing for path in files.OPTIONAL for thing in yaml.safe_load_all(path.read_text())]
    (_, component) = policy["spec"]["podSelector"]["matchExpressions"]
    assert component["values"] == ["summarize", "query"]
    assert policy["spec"]["policyTypes"] == ["Egress"]
    assert all("ipBlock" not in str(thing) for thing in files.objects() if thing["kind"] == "NetworkPolicy")
