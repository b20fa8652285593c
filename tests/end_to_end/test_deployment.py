"""The benchmark on a scheduler: server, work pool, worker and deployments."""

import json
import urllib.request
from typing import Any

import pytest
from prefect.utilities.templating import apply_values

from tests.end_to_end.conftest import BIN, SMALL, TINY_ATTACK, Workplace
from tests.servers import stopped_after

pytestmark = [pytest.mark.end_to_end, pytest.mark.long]


def test_a_deployment_runs_on_a_worker_with_parameters_of_its_own(clone: Workplace) -> None:
    clone.run("prefect", "--no-prompt", "work-pool", "create", "local", "--type", "process")
    clone.run("prefect", "--no-prompt", "deploy", "--all")
    request = urllib.request.Request(
        f"{clone.environment['PREFECT_API_URL']}/deployments/filter",
        data=b"{}",
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        schedules = {one["name"]: one["schedules"] for one in json.load(response)}
    assert [one["schedule"]["cron"] for one in schedules["demo"]] == ["0 3 * * *"]

    refused = clone.run(
        "prefect", "deployment", "run", "benchmark/one-setting", "-p", 'settings={"train": {"epochs": 0}}', code=1
    )
    assert "settings.train.epochs" in " ".join((refused.stdout + refused.stderr).split())

    parameters = {
        "name": "deployed",
        "seeds": 3,
        "data": SMALL["data"],
        "partition": {"alpha": 0.5, "clients": 2},
        "train": {"epochs": 1},
        "methods": {"fedavg": {}, "local_mean": {}},
        "tracking": SMALL["tracking"],
    }
    worker = [str(BIN / "prefect"), "worker", "start", "--pool", "local", "--limit", "1"]
    with stopped_after(worker, clone.environment, clone.folder):
        clone.run(
            "prefect",
            "deployment",
            "run",
            "benchmark/one-setting",
            "--watch",
            "-p",
            f"settings={json.dumps(parameters)}",
        )
        clone.write("params.yaml", {**parameters, "name": "demo", "seeds": [5]})
        clone.run("prefect", "deployment", "run", "benchmark/demo", "--watch")
        attack = json.dumps({**TINY_ATTACK, "methods": {"fedavg": {}}})
        clone.run("prefect", "deployment", "run", "privacy-attack/one-client", "--watch", "-p", f"settings={attack}")
    rows = clone.rows("deployed")
    assert {(row["method"], row["seed"]) for row in rows} == {("fedavg", 3), ("local_mean", 3)}
    assert {row["seed"] for row in clone.rows("demo")} == {5}
    page = (clone.folder / "results/deployed/index.html").read_text()
    assert "benchmark/one-setting&#39; --param &#39;settings={" in page
    page = (clone.folder / "results/demo/index.html").read_text()
    assert "benchmark/demo&#39; --param" not in page
    assert {row["method"] for row in clone.rows("attack") if not row["reference"]} == {"fedavg"}
    assert not (clone.folder / "dvc.lock").exists()


def test_runs_in_containers_are_deployed_with_manifests_of_their_own(clone: Workplace) -> None:
    for kind in ("docker", "kubernetes"):
        clone.run("prefect", "--no-prompt", "work-pool", "create", kind, "--type", kind)
    clone.run("prefect", "--no-prompt", "deploy", "--all", "--prefect-file", "deploy/pools.yaml")
    manifests = {kind: manifest_of(clone, kind) for kind in ("docker", "kubernetes")}
    assert manifests["docker"]["image"] == "fedfisher:latest"
    assert manifests["docker"]["volumes"] == ["results:/project/results"]
    job = manifests["kubernetes"]["job_manifest"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert (job["kind"], job["metadata"]["namespace"]) == ("Job", "fedfisher")
    assert container["resources"] == {"limits": {"memory": "8Gi"}, "requests": {"cpu": "2", "memory": "4Gi"}}
    assert manifests["docker"]["env"] == container["env"] == {"AWS_ENDPOINT_URL": "https://OBJECT-STORE"}


def manifest_of(clone: Workplace, name: str) -> dict[str, Any]:
    """What Prefect makes of a deployment with the template of its pool, as it does before each run."""
    found = asked(clone, f"deployments/name/benchmark/{name}")
    template = asked(clone, f"work_pools/{found['work_pool_name']}")["base_job_template"]
    known = template["variables"]["properties"]
    assert set(found["job_variables"]) <= set(known)
    defaults = {key: one["default"] for key, one in known.items() if one.get("default") is not None}
    made = apply_values(template["job_configuration"], defaults | found["job_variables"])
    assert isinstance(made, dict)
    return made


def asked(clone: Workplace, place: str) -> Any:
    with urllib.request.urlopen(f"{clone.environment['PREFECT_API_URL']}/{place}") as response:
        return json.load(response)
