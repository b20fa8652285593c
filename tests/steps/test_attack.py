"""A whole tiny privacy attack through its steps, without orchestration."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fedfisher_core.attack.experiment import PrivacyAttack
from fedfisher_core.steps.attack import (
    Attacked,
    attack,
    attack_step,
    best_images,
    measure_bounds,
    prior_sample,
    private_images,
    read_measures,
    seen_by_the_server,
)
from fedfisher_core.steps.context import Context

from fedfisher_core.attack.cases import case_of
from fedfisher_core.attack.likelihoods.kfac import KfacEvidence
from fedfisher_core.client.kfac import KFAC
from fedfisher_core.client.statistic import Statistic
from fedfisher_core.client.weights import Weights
from fedfisher_core.configuration import validate
from fedfisher_core.errors import InputError
from fedfisher_core.experiments.attack.settings import PrivacyAttack
from fedfisher_core.federation.data import decode_data, load_data
from fedfisher_core.federation.partition import load_partition, split_data
from fedfisher_core.federation.training import TENSORS, compute_statistics, train_client
from fedfisher_core.methods.binding import bind
from fedfisher_core.store import Artifact, read_tensors

TARGET = 1
KINDS: tuple[type[Statistic], ...] = (Weights, KFAC)


@dataclass(frozen=True)
class Scene:
    """A trained federation and its attacker."""

    context: AttackContext
    federation: Context
    data: Artifact
    partition: Artifact
    clients: Mapping[int, Mapping[str, Artifact]]
    prior: Artifact
    judge: Artifact

    def attacked(self, method: str, *, wire: Mapping[str, Any] | None = None) -> Attacked:
        (cell,) = self.federation.settings.cells()
        chosen = {} if wire is None else {"wire": wire}
        bound = bind(method, chosen, [self.federation.model(cell)], self.federation.settings.wire)
        return Attacked(
            federation=self.federation,
            cell=cell,
            target=TARGET,
            bound=bound,
            case=case_of(method, bound.method.views, compressed=wire is None),
            clients=self.clients,
            data=self.data,
            partition=self.partition,
        )

    def attack(self, attacked: Attacked) -> Artifact:
        return attack(self.context, attacked, self.prior, self.judge)


def settings(folder: Path, **changes: Any) -> PrivacyAttack:
    base = {
        "seeds": [0],
        "data": {"dataset": "mnist5k"},
        "model": {"name": "compact"},
        "train": {"steps": 20},
        "threat": {"target_labels": [TARGET], "clients": 3, "extra_images": 10, "auxiliary_images": 100, "alpha": 5},
        "gan": {"latent": 4, "width": 2, "generator_steps": 3, "batch_size": 8},
        "inversion": {"restarts": 2, "images": 3, "iterations": 4},
        "evaluator": {"epochs": 1, "filters": 2},
        "run": {"store": str(folder / "artifacts"), "reports": str(folder / "reports"), "device": "cpu"},
    }
    return validate(PrivacyAttack, base | changes)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("attack")
    context = AttackContext(settings(folder))
    (one,) = context.settings.federations()
    federation = Context(one.settings)
    (cell,) = one.settings.cells()
    data = decode_data(federation, "mnist5k")
    partition = split_data(federation, cell, data)
    clients = {}
    for client in range(cell.clients):
        trained = train_client(federation, cell, data, partition, client)
        clients[client] = compute_statistics(federation, cell, data, partition, client, trained, KINDS)
    return Scene(
        context=context,
        federation=federation,
        data=data,
        partition=partition,
        clients=clients,
        prior=train_prior(context, cell, TARGET, data, partition),
        judge=train_judge(context, data),
    )


def test_the_attackers_images_are_of_other_clients_and_without_the_target(scene: Scene) -> None:
    (cell,) = scene.federation.settings.cells()
    indices = auxiliary_indices(scene.context, cell, TARGET, scene.data, scene.partition)
    assert len(set(indices.tolist())) == 100
    assert not set(indices.tolist()) & set(load_partition(scene.partition).clients[0].tolist())
    assert TARGET not in load_data(scene.data).train.labels[indices]


def test_auxiliary_images_of_the_target_label_are_refused(scene: Scene) -> None:
    (cell,) = scene.federation.settings.cells()
    # Whoever attacks another label finds it at the other clients.
    with pytest.raises(
        InputError, match=f"auxiliary images of .* have the target label {TARGET + 1}, which would void"
    ):
        train_prior(scene.context, cell, TARGET + 1, scene.data, scene.partition)


def test_more_auxiliary_images_than_there_are_are_refused(scene: Scene) -> None:
    (cell,) = scene.federation.settings.cells()
    threat = scene.context.settings.threat.model_copy(update={"auxiliary_images": 10**6})
    context = AttackContext(scene.context.settings.model_copy(update={"threat": threat}))
    with pytest.raises(InputError, match=r"threat.auxiliary_images=1000000, but clients \[1, 2\] .* hold \d+ images"):
        train_prior(context, cell, TARGET, scene.data, scene.partition)


def test_an_attack_is_measured_stored_and_found_again(scene: Scene) -> None:
    attacked = scene.attacked("fedavg")
    artifact = scene.attack(attacked)
    measures = read_measures(artifact)
    assert 0 <= measures["best"]["accuracy"] <= 1
    assert best_images(artifact).shape == (3, 1, 28, 28)
    written = (artifact.path / "manifest.json").stat().st_mtime_ns
    assert scene.attack(attacked) == artifact
    assert (artifact.path / "manifest.json").stat().st_mtime_ns == written


def test_methods_that_show_the_same_share_an_attack_and_others_do_not(scene: Scene) -> None:
    def key(method: str, **changes: Any) -> str:
        return attack_step(scene.context, scene.attacked(method, **changes), scene.prior, scene.judge).key

    assert key("ensemble") == key("ensemble_logits") == key("local_mean")
    keys = [key("ensemble"), key("fedavg"), key("fedfisher_kfac"), key("fedfisher_kfac", wire={"budget": "none"})]
    assert len(set(keys)) == 4


def test_the_attacker_of_a_local_model_sees_no_other_client(scene: Scene) -> None:
    attacked = scene.attacked("ensemble")
    alone = replace(attacked, clients={0: scene.clients[0]})
    assert attack_step(scene.context, alone, scene.prior, scene.judge).key == (
        attack_step(scene.context, attacked, scene.prior, scene.judge).key
    )
    summed = scene.attacked("fedavg")
    swapped = replace(summed, clients={**scene.clients, 2: scene.clients[1]})
    assert attack_step(scene.context, swapped, scene.prior, scene.judge).key != (
        attack_step(scene.context, summed, scene.prior, scene.judge).key
    )


def test_the_server_sees_the_mean_of_models_and_the_clients_own_factors(scene: Scene) -> None:
    attacked = scene.attacked("fedfisher_kfac", wire={"budget": "none"})
    weights, evidence = seen_by_the_server(scene.context, attacked)
    sizes = [len(client) for client in load_partition(scene.partition).clients]
    models = [read_tensors(scene.clients[client]["weights"], TENSORS) for client in range(3)]
    for name, tensor in weights.items():
        mean = sum(size * model[name] for size, model in zip(sizes, models, strict=True)) / sum(sizes)
        torch.testing.assert_close(tensor, mean)
    assert isinstance(evidence, KfacEvidence)
    own = read_tensors(scene.clients[0]["kfac"], TENSORS)
    for layer, factors in evidence.factors.items():
        torch.testing.assert_close(factors.inputs, own[f"{layer}.inputs"])
        torch.testing.assert_close(factors.outputs, own[f"{layer}.outputs"])


def test_bounds_have_a_ceiling_above_the_floor_of_noise(scene: Scene) -> None:
    (cell,) = scene.federation.settings.cells()
    bounds = measure_bounds(scene.context, cell, TARGET, scene.data, scene.partition, scene.prior, scene.judge)
    measures = read_measures(bounds)
    assert measures["real"]["feature_distance"] < measures["uniform"]["feature_distance"]
    assert prior_sample(bounds).shape == (3, 1, 28, 28)


def test_private_images_are_the_clients_own_of_the_target(scene: Scene) -> None:
    found = private_images(scene.data, scene.partition, TARGET, 4)
    train = load_data(scene.data).train
    held = torch.from_numpy(load_partition(scene.partition).clients[0])
    assert torch.equal(found, train.inputs[held[train.labels[held] == TARGET]][:4])
