"""A whole tiny privacy attack through its jobs, without orchestration."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.job import Job, map_roles
from fedfisher_core.engine.performing import execute
from fedfisher_core.engine.plan import Outcome, agenda_of
from fedfisher_core.engine.store import Artifact, open_store, read_tensors
from fedfisher_core.experiments.privacy_attack.attacker import private_images
from fedfisher_core.experiments.privacy_attack.jobs import (
    AttackClient,
    best_images,
    prior_sample,
    read_attack,
    read_bounds,
)
from fedfisher_core.experiments.privacy_attack.page import make_galleries, make_runs
from fedfisher_core.experiments.privacy_attack.plan import AttackPlan, Trial, make_plan, make_rows
from fedfisher_core.experiments.privacy_attack.settings import AttackSettings
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.federation import PartitionInputs
from fedfisher_core.federation.partition import held_by
from fedfisher_core.federation.uploads import TENSORS
from fedfisher_core.privacy.attack.evidence import Together
from fedfisher_core.privacy.attack.factors import Factors
from fedfisher_core.privacy.attack.likelihoods.kfac import KfacEvidence
from fedfisher_core.settings.reading import validate

TARGET = 1
METHODS: dict[str, dict[str, Any]] = {
    "ensemble": {},
    "ensemble_logits": {},
    "local_mean": {},
    "fedavg": {},
    "fedfisher_kfac": {"wire": {"budget": "none"}},
    "compressed": {"method": "fedfisher_kfac"},
}


def settings(folder: Path, **changes: Any) -> AttackSettings:
    base = {
        "seeds": [0],
        "data": {"dataset": "mnist5k"},
        "model": {"name": "compact"},
        "train": {"steps": 20},
        "threat": {"target_labels": [TARGET], "clients": 3, "extra_images": 10, "auxiliary_images": 100, "alpha": 5},
        "methods": METHODS,
        "gan": {"latent": 4, "width": 2, "generator_steps": 3, "batch_size": 8},
        "inversion": {"restarts": 2, "images": 3, "iterations": 4},
        "evaluator": {"epochs": 1, "filters": 2},
        "run": {"store": str(folder / "artifacts"), "reports": str(folder / "results"), "device": "cpu"},
    }
    return validate(AttackSettings, base | changes)


@dataclass(frozen=True)
class Scene:
    """A privacy attack whose work is done."""

    plan: AttackPlan
    outcome: Outcome

    @property
    def trial(self) -> Trial:
        (trial,) = self.plan.trials
        return trial

    @property
    def data(self) -> Artifact:
        return self.made(self.trial.federations.data(self.trial.federation))

    @property
    def partition(self) -> Artifact:
        return self.made(self.trial.federations.partition(self.trial.federation))

    def inputs(self, job: Job[Any]) -> Any:
        return map_roles(job.needs, self.made)

    def made(self, job: Job[Any]) -> Artifact:
        artifact = open_store(self.plan.settings.run.store).find(job.recipe)
        assert artifact is not None, job.name
        return artifact


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    plan = make_plan(settings(tmp_path_factory.mktemp("attack")))
    return Scene(plan, execute(plan.jobs, open_store(plan.settings.run.store)))


def test_the_attackers_images_are_of_other_clients_and_without_the_target(scene: Scene) -> None:
    indices = scene.trial.prior.auxiliary(scene.inputs(scene.trial.prior))
    assert len(set(indices.tolist())) == 100
    assert not set(indices.tolist()) & set(held_by(scene.partition, 0).tolist())
    assert TARGET not in load_data(scene.data).train.labels[indices]


def test_the_attacker_knows_how_statistics_were_released(scene: Scene, tmp_path: Path) -> None:
    plain = scene.trial.attack("fedfisher_kfac")
    inputs = scene.inputs(plain)
    private = make_plan(settings(tmp_path, methods={"fedfisher_kfac": {}}, privacy={"epsilon": 8}))
    attack = private.trials[0].attack("fedfisher_kfac")
    release = attack.released(inputs)
    assert plain.released(inputs) is None
    assert release is not None
    assert release.settings.epsilon == 8
    assert release.multiplier > 0
    assert release.num_examples == tuple(len(held_by(scene.partition, client)) for client in range(3))
    tighter = replace(
        attack,
        federation=replace(
            attack.federation,
            settings=attack.federation.settings.model_copy(
                update={"privacy": release.settings.model_copy(update={"input_clip": 0.1})}
            ),
        ),
    )
    assert len({job.key for job in (plain, attack, tighter)}) == 3


def test_auxiliary_images_of_the_target_label_are_refused(scene: Scene) -> None:
    # An attack on another label finds its images at the other clients.
    prior = replace(scene.trial.prior, target=TARGET + 1)
    with pytest.raises(
        InputError, match=f"auxiliary images of .* have the target label {TARGET + 1}, which would void"
    ):
        prior.compute(scene.inputs(prior))


def test_more_auxiliary_images_than_there_are_are_refused(scene: Scene) -> None:
    threat = scene.plan.settings.threat.model_copy(update={"auxiliary_images": 10**6})
    prior = replace(scene.trial.prior, experiment=scene.plan.settings.model_copy(update={"threat": threat}))
    with pytest.raises(InputError, match=r"threat.auxiliary_images=1000000, but clients \[1, 2\] .* hold \d+ images"):
        prior.compute(scene.inputs(prior))


def test_an_attack_is_measured_stored_and_found_again(scene: Scene) -> None:
    artifact = scene.made(scene.trial.attack("fedavg"))
    measures = read_attack(artifact)
    assert 0 <= measures.best.accuracy <= 1
    assert 0 <= measures.mean_accuracy <= 1
    assert best_images(artifact).shape == (3, 1, 28, 28)
    store = open_store(scene.plan.settings.run.store)
    again = agenda_of(scene.plan.jobs, store)
    assert again.missing == []
    assert read_attack(again.outcome(store, {}).artifacts[scene.trial.attack("fedavg").name]) == measures


def test_another_method_costs_its_own_uploads_and_its_attack(scene: Scene) -> None:
    wanted = scene.plan.settings.model_copy(
        update={"methods": validate(AttackSettings, {"methods": {**METHODS, "fedfisher_diag": {}}}).methods}
    )
    store = open_store(wanted.run.store)
    jobs = make_plan(wanted).jobs
    missing = [job.name for job in agenda_of(jobs, store).missing]
    assert {name for name in missing if "diag" not in name} == set()
    assert f"attack on label {TARGET} by fedfisher_diag of {scene.trial.federation.label}" in missing


def test_methods_that_show_the_same_share_an_attack_and_others_do_not(scene: Scene) -> None:
    artifacts = {label: scene.made(scene.trial.attack(label)) for label in METHODS}
    assert artifacts["ensemble"] == artifacts["ensemble_logits"] == artifacts["local_mean"]
    assert len({artifact.key for artifact in artifacts.values()}) == 4


def test_the_attacker_of_a_local_model_sees_no_other_client(scene: Scene) -> None:
    assert list(scene.trial.attack("ensemble").needs.payloads) == [0]
    summed = scene.trial.attack("fedavg")
    payloads = summed.needs.payloads
    assert list(payloads) == [0, 1, 2]
    exchanged = replace(summed, needs=replace(summed.needs, payloads={**payloads, 2: payloads[1]}))
    assert exchanged.key != summed.key


@pytest.mark.parametrize(
    "changes",
    [
        {"inversion": {"iterations": 5}},
        {"gan": {"generator_steps": 4}},
        {"evaluator": {"epochs": 2}},
        {"fisher": {"estimator": "monte_carlo"}},
        {"run": {"torch_threads": 2}},
    ],
)
def test_settings_that_can_change_an_attack_attack_anew(scene: Scene, changes: dict[str, Any]) -> None:
    attack = scene.trial.attack("fedavg")
    content = scene.plan.settings.model_dump(mode="json")
    for group, values in changes.items():
        content[group] |= values
    (other,) = make_plan(validate(AttackSettings, content)).trials
    assert other.attack("fedavg").key != attack.key


def seen(scene: Scene, label: str) -> tuple[Any, Any]:
    attack: AttackClient = scene.trial.attack(label)
    return attack.seen(scene.inputs(attack))


def test_the_server_sees_the_mean_of_models_and_the_clients_own_factors(scene: Scene) -> None:
    weights, evidence = seen(scene, "fedfisher_kfac")
    federations, place = scene.trial.federations, scene.trial.federation
    bound = federations.methods["fedfisher_kfac"]
    stored = [
        {name: scene.made(job) for name, job in jobs.items()}
        for jobs in (federations.uploaded(place, client, bound) for client in range(3))
    ]
    sizes = [len(held_by(scene.partition, client)) for client in range(3)]
    models = [read_tensors(own["weights"], TENSORS) for own in stored]
    for name, tensor in weights.items():
        mean = sum(size * model[name] for size, model in zip(sizes, models, strict=True)) / sum(sizes)
        torch.testing.assert_close(tensor, mean)
    assert isinstance(evidence, Together)
    (part,) = evidence.parts
    assert isinstance(part, KfacEvidence)
    own = read_tensors(stored[0]["kfac"], TENSORS)
    for layer, (inputs, outputs) in part.factors.items():
        assert inputs is not None
        assert outputs is not None
        torch.testing.assert_close(inputs.received, own[f"{layer}.inputs"])
        torch.testing.assert_close(outputs.received, own[f"{layer}.outputs"])


def test_the_server_of_an_ensemble_sees_the_clients_own_model(scene: Scene) -> None:
    weights, _ = seen(scene, "ensemble")
    trained = read_tensors(scene.made(scene.trial.federations.training(scene.trial.federation, 0)), TENSORS)
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, trained[name])


def test_bounds_have_a_ceiling_above_the_floor_of_noise(scene: Scene) -> None:
    bounds = scene.made(scene.trial.bounds)
    measures = read_bounds(bounds)
    assert measures.real.feature_distance < measures.uniform.feature_distance
    assert prior_sample(bounds).shape == (3, 1, 28, 28)


def test_private_images_are_the_clients_own_of_the_target(scene: Scene) -> None:
    found = private_images(PartitionInputs(scene.data, scene.partition), TARGET)
    train = load_data(scene.data).train
    held = torch.from_numpy(held_by(scene.partition, 0))
    assert torch.equal(found, train.inputs[held[train.labels[held] == TARGET]])


def test_rows_are_of_every_method_then_of_floors_and_ceiling(scene: Scene) -> None:
    rows = make_rows(scene.plan, scene.outcome)
    assert [row.method for row in rows] == [*METHODS, "noise", "GAN without inversion", "real test images"]
    for row in rows[: len(METHODS)]:
        assert row.artifact == scene.made(scene.trial.attack(row.method)).key
        assert row.case == scene.trial.cases[row.method][Factors.ALL].name
        assert row.factors is None
        assert row.accuracy is not None
        assert row.upload_bits
    ceiling = rows[-1]
    assert (ceiling.reference, ceiling.accuracy, ceiling.upload_bits) == (True, None, None)
    assert ceiling.attack_accuracy == read_bounds(scene.made(scene.trial.bounds)).real.accuracy


def test_the_gallery_has_a_row_a_method_between_real_images_and_the_priors(scene: Scene) -> None:
    (gallery,) = make_galleries(scene.plan, scene.outcome)
    assert gallery.rows == ("the client's own images", *METHODS, "GAN without inversion")
    assert gallery.images.shape == (len(METHODS) + 2, 3, 1, 28, 28)
    assert 0 <= gallery.images.min() < gallery.images.max() <= 1


def test_every_row_is_recorded_with_its_picture_and_a_method_once_in_sum(scene: Scene) -> None:
    rows = make_rows(scene.plan, scene.outcome)
    runs = make_runs(scene.plan, scene.outcome, rows)
    by_name = {record.name: record for record in runs.single}
    assert len(by_name) == len(runs.single) == len(rows)
    record = by_name[f"fedavg label={TARGET} s=0"]
    row = next(row for row in rows if row.method == "fedavg")
    assert record.metrics["attack_accuracy"] == row.attack_accuracy
    assert record.tags["artifact"] == row.artifact
    assert record.draw()["reconstructions.png"].startswith(b"\x89PNG")
    assert {record.name for record in runs.summary} == {row.method for row in rows}
    assert all(data.startswith(b"\x89PNG") for data in runs.summary[0].draw().values())


@pytest.fixture(scope="module")
def by_factor(scene: Scene) -> Scene:
    """The same attack, and another on the output factors alone."""
    changes = {
        "inversion": scene.plan.settings.inversion.model_copy(update={"factors": (Factors.ALL, Factors.OUTPUTS)})
    }
    plan = make_plan(scene.plan.settings.model_copy(update=changes))
    store = open_store(plan.settings.run.store)
    missing = [job.name for job in agenda_of(plan.jobs, store).missing]
    assert sorted(missing) == [
        f"attack on label {TARGET} through outputs by {label} of {scene.trial.federation.label}"
        for label in ("compressed", "fedfisher_kfac")
    ]
    return Scene(plan, execute(plan.jobs, store))


def test_each_choice_of_factors_is_a_case_more_where_factors_are_sent_and_others_stay(
    scene: Scene, by_factor: Scene
) -> None:
    rows, alone = (make_rows(one.plan, one.outcome) for one in (by_factor, scene))
    assert [row for row in rows if row.factors is None] == alone
    more = [row for row in rows if row.factors is not None]
    assert [(row.method, row.factors, row.case) for row in more] == [
        ("fedfisher_kfac", "outputs", "sum of models and the client's K-FAC, outputs alone"),
        ("compressed", "outputs", "sum of models and the client's K-FAC, compressed, outputs alone"),
    ]
    for row in more:
        (whole,) = (one for one in alone if one.method == row.method)
        assert row.artifact == by_factor.made(by_factor.trial.attack(row.method, Factors.OUTPUTS)).key
        assert row.artifact != whole.artifact
        assert (row.accuracy, row.upload_bits) == (whole.accuracy, whole.upload_bits)


def test_the_attack_compares_the_chosen_factors_as_they_were_sent(scene: Scene, by_factor: Scene) -> None:
    attack = by_factor.trial.attack("fedfisher_kfac", Factors.OUTPUTS)
    _, evidence = attack.seen(by_factor.inputs(attack))
    _, whole = seen(scene, "fedfisher_kfac")
    (part,), (all_of_them,) = evidence.parts, whole.parts
    for layer, (inputs, outputs) in part.factors.items():
        assert inputs is None
        torch.testing.assert_close(outputs.received, all_of_them.factors[layer][1].received)


def test_each_choice_of_factors_has_a_gallery_row_and_runs_of_its_own(scene: Scene, by_factor: Scene) -> None:
    (gallery,) = make_galleries(by_factor.plan, by_factor.outcome)
    assert {"fedfisher_kfac", "fedfisher_kfac, outputs alone", "compressed, outputs alone"} < set(gallery.rows)
    assert len(gallery.rows) == len(METHODS) + 4
    rows = make_rows(by_factor.plan, by_factor.outcome)
    runs = make_runs(by_factor.plan, by_factor.outcome, rows)
    before = make_runs(scene.plan, scene.outcome, make_rows(scene.plan, scene.outcome))
    for found, known in ((runs.single, before.single), (runs.summary, before.summary)):
        assert len({record.identity for record in found}) == len({record.name for record in found}) == len(found)
        assert {record.identity for record in known} < {record.identity for record in found}
    (record,) = (one for one in runs.single if one.name == f"fedfisher_kfac, outputs alone label={TARGET} s=0")
    assert (record.params["method"], record.params["factors"]) == ("fedfisher_kfac", "outputs")
    assert record.tags["case"] == "sum of models and the client's K-FAC, outputs alone"
    assert record.draw()["reconstructions.png"].startswith(b"\x89PNG")
