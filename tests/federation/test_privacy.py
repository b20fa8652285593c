"""Differential privacy of the clients of a tiny benchmark."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.performing import execute
from fedfisher_core.engine.store import Artifact, open_store, read_document, read_tensors
from fedfisher_core.experiments.benchmark.plan import make_plan
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.partition import held_by
from fedfisher_core.federation.privacy_audit import read_audit
from fedfisher_core.federation.private_training import Budget
from fedfisher_core.federation.uploads import TENSORS
from fedfisher_core.methods.fedavg import fedavg
from fedfisher_core.methods.method import methods
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.privacy.accountant import Noise, calibrate
from fedfisher_core.settings import PrivacySettings
from tests import tiny, walked
from tests.client.statistics.outside import NoisyMean

PRIVATE = {"epsilon": 4.0, "delta": 1e-3}
FISHERS = ("fedfisher_diag", "fedfisher_kfac")
# A tiny network's budget has no room for the moments of its inputs.
DISTILLATION = {"gaussian_distillation": {"steps": 5, "wire": {"budget": "none"}}}


def client(folder: Path, chosen: tuple[str, ...], *, privacy: dict[str, Any] | None = PRIVATE) -> dict[str, Artifact]:
    """What the first client makes for methods, by the statistic's name."""
    settings = tiny.tiny_settings(folder, methods=chosen, privacy=privacy)
    done = walked.walk_clients(settings)
    return {name: artifact for one in chosen for name, artifact in done.client(0, one).items()}


def looks_where_it_can(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    if server.can_validate:
        assert len(server.validation)
    return fedavg(server, uploads)


def noise(artifacts: dict[str, Artifact]) -> dict[str, Any]:
    return read_document(artifacts["weights"], "training.json")["noise"]


def same(one: Artifact, other: Artifact) -> bool:
    first, second = read_tensors(one, TENSORS), read_tensors(other, TENSORS)
    return all(torch.equal(first[name], second[name]) for name in first)


def test_what_a_client_releases_keeps_within_its_budget(workplace: Path) -> None:
    alone, together = noise(client(workplace, ("fedavg",))), noise(client(workplace, FISHERS))
    for spent in (alone, together):
        assert 0.95 * PRIVATE["epsilon"] < spent["epsilon"] <= PRIVATE["epsilon"]
    # Fishers take from the same budget, so that the training that goes with them is noisier.
    assert alone["release"] is None
    assert together["release"] > 0
    assert together["training"] > alone["training"]


def test_private_clients_are_others_than_plain_ones_and_the_same_again(workplace: Path, tmp_path: Path) -> None:
    private, plain = client(workplace, FISHERS), client(workplace, FISHERS, privacy=None)
    assert not {artifact.key for artifact in private.values()} & {artifact.key for artifact in plain.values()}
    again = client(tmp_path / "elsewhere", FISHERS)
    for name, artifact in private.items():
        assert not same(artifact, plain[name])
        assert same(artifact, again[name])


def one_step(folder: Path, epsilon: float) -> tuple[torch.Tensor, float]:
    """Train for one step on all examples: the weights, and the deviation of the noise on the sum of the gradients."""
    settings = tiny.tiny_settings(
        folder, privacy={"epsilon": epsilon, "delta": 1e-3}, train={"epochs": None, "steps": 1, "batch_size": 500}
    )
    artifact = walked.walk_clients(settings).client(0, "fedavg")["weights"]
    weights = torch.cat([tensor.flatten() for _, tensor in sorted(read_tensors(artifact, TENSORS).items())])
    return weights.double(), noise({"weights": artifact})["training"]


def test_two_budgets_of_a_sweep_do_not_share_their_noise(workplace: Path) -> None:
    (some, less), (more, least), (bare, nearly_none) = (one_step(workplace, epsilon) for epsilon in (2.0, 4.0, 1000.0))
    assert least > 30 * nearly_none
    # If they did, the two would lie on one line with the weights without noise, which anybody could then go back to.
    guessed = (less * more - least * some) / (less - least)
    assert (guessed - bare).norm() > 0.5 * (more - bare).norm()
    assert cosine(some - bare, more - bare).abs() < 0.4


def test_two_scales_of_adapters_do_not_share_their_noise(workplace: Path) -> None:
    """The tiny adapters have no scale, so that the two trainings differ in their noise alone."""
    trained = []
    for alpha in (16.0, 32.0):
        model = {"name": "adapted", "lora": {"alpha": alpha}}
        done = walked.walk_clients(tiny.tiny_settings(workplace, methods=("fedavg",), privacy=PRIVATE, model=model))
        trained.append(done.client(0, "fedavg")["weights"])
    assert not same(*trained)


def mean_image(folder: Path, *, radius: float = 0.1, **changes: Any) -> torch.Tensor:
    """Release a mean of images that are all longer than the radius, so that in its units nothing but noise differs."""
    statistics = {"noisy_mean": {"radius": radius}}
    alone = {"clients": [1]}
    settings = tiny.tiny_settings(folder, methods={"with_mean": {}}, statistics=statistics, partition=alone, **changes)
    artifact = walked.walk_clients(settings).client(0, "with_mean")["noisy_mean"]
    return read_tensors(artifact, TENSORS)["mean"].double() / radius


def cosine(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cosine_similarity(one, other, dim=0)


@pytest.mark.parametrize("changes", [{"privacy": PRIVATE | {"epsilon": 8.0}}, {"radius": 0.2}])
def test_two_releases_under_different_settings_do_not_share_their_noise(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    own = replace(methods.get("fedavg"), name="with_mean", uploads=(Weights, NoisyMean), sums=None)
    monkeypatch.setitem(methods._things, "with_mean", own)
    plain, first, second = (
        mean_image(workplace, **given)
        for given in ({"privacy": None}, {"privacy": PRIVATE}, {"privacy": PRIVATE} | changes)
    )
    assert cosine(first - plain, second - plain).abs() < 0.5


def released(folder: Path, **changes: Any) -> dict[str, Artifact]:
    """What the first client makes for Gaussian distillation, by the statistic's name."""
    settings = tiny.tiny_settings(folder, methods=DISTILLATION, **changes)
    return walked.walk_clients(settings).client(0, "gaussian_distillation")


def test_input_moments_are_one_mechanism_more(workplace: Path) -> None:
    artifacts = released(workplace, privacy=PRIVATE)
    factors, both = noise(client(workplace, ("fedfisher_kfac",))), noise(artifacts)
    assert set(artifacts) == {"weights", "kfac", "input_moments"}
    assert both["training"] > factors["training"]
    assert both["release"] == factors["release"]
    # In place of one mechanism two go on all examples, as well as the training's.
    examples, settings = held(workplace), tiny.tiny_settings(workplace, privacy=PRIVATE)
    expected = calibrate(
        PrivacySettings(**PRIVATE),
        num_examples=examples,
        batch_size=settings.train.batch_size,
        steps=3 * -(-examples // settings.train.batch_size),
        releases=2,
    )
    assert both == asdict(expected)


def held(folder: Path) -> int:
    """How many images the first client holds."""
    return len(held_by(walked.walk_clients(tiny.tiny_settings(folder)).partition, 0))


def test_gaussian_distillation_runs_with_privacy(workplace: Path) -> None:
    row = walked.walk(tiny.tiny_settings(workplace, privacy=PRIVATE, methods=DISTILLATION)).rows[
        "gaussian_distillation"
    ]
    assert 0 <= row.accuracy <= 1
    assert row.epsilon is not None
    assert 0.95 * PRIVATE["epsilon"] < row.epsilon <= PRIVATE["epsilon"]
    assert not row.uses_validation


def noisy_moments(folder: Path, *, epsilon: float = 4.0, clip: float = 1e-3, directions: int = 3) -> torch.Tensor:
    """Release a mean of images that are all longer than the clip, so that in its units nothing but noise differs."""
    artifacts = released(
        folder,
        partition={"clients": [1]},
        privacy=PRIVATE | {"epsilon": epsilon, "input_moments_clip": clip},
        statistics={"input_moments": {"directions": directions}},
    )
    return read_tensors(artifacts["input_moments"], TENSORS)["mean"].double() / clip**0.5


@pytest.mark.drawn(1)
@pytest.mark.parametrize("changes", [{"epsilon": 8.0}, {"clip": 2e-3}, {"directions": 4}])
def test_two_releases_of_moments_under_different_settings_do_not_share_their_noise(
    workplace: Path, changes: dict[str, Any]
) -> None:
    bare, first, second = (noisy_moments(workplace, **given) for given in ({"epsilon": 1e4}, {}, changes))
    assert (first - bare).norm() > 0.1
    assert cosine(first - bare, second - bare).abs() < 0.5


def test_the_clip_of_moments_changes_nothing_for_clients_that_send_none(workplace: Path) -> None:
    other = PRIVATE | {"input_moments_clip": 2.0}
    one, same_again = (client(workplace, FISHERS, privacy=privacy) for privacy in (PRIVATE, other))
    assert {artifact.key for artifact in one.values()} == {artifact.key for artifact in same_again.values()}
    with_moments, others = (released(workplace, privacy=privacy) for privacy in (PRIVATE, other))
    assert not {one.key for one in with_moments.values()} & {one.key for one in others.values()}


def test_what_methods_release_together_is_held_against_the_budget_before_any_work(workplace: Path) -> None:
    privacy = PRIVATE | {"statistics_share": 0.65}
    for chosen in ({"fedfisher_diag": {}}, DISTILLATION):
        check_federations(tiny.tiny_settings(workplace, privacy=privacy, methods=chosen))
    both = tiny.tiny_settings(workplace, privacy=privacy, methods={"fedfisher_diag": {}} | DISTILLATION)
    with pytest.raises(InputError, match=r"privacy\.statistics_share=0\.65 and 3 noisy statistics: .* is spent"):
        check_federations(both)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"methods": {"regmean": {}}}, "method 'regmean': privacy with statistic 'gram'; allowed: 'weights'"),
        ({"privacy": {"epsilon": 1e-4}, "methods": {"fedfisher_diag": {}}}, r"privacy\.epsilon=0\.0001"),
        ({"fisher": {"backend": "nngeometry"}}, r"privacy with fisher\.backend='nngeometry'; allowed: 'native'"),
        (
            {"methods": {"fedfisher_diag": {"solver": "paper"}}},
            "public_validation=false with privacy, but method 'fedf",
        ),
        ({"methods": {"fedavg": {}, "centralised": {}}}, "method 'centralised': .* a second release"),
        ({"privacy": None, "audit": {}}, r"audit with privacy=null"),
        ({"audit": {"canaries": 5, "guesses": 6}}, r"audit\.guesses=6; allowed: at most audit\.canaries=5"),
        ({"privacy": {"epsilon": -1}}, r"privacy\.epsilon=-1"),
        ({"privacy": {"epsilon": 1, "delta": 1}}, r"privacy\.delta=1"),
        ({"privacy": {"epsilon": 1, "input_moments_clip": 0}}, r"privacy\.input_moments_clip=0"),
    ],
)
def test_what_can_not_be_private_is_refused_by_name(workplace: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_federations(tiny.tiny_settings(workplace, **({"privacy": PRIVATE} | changes)))


def test_a_method_without_a_validation_set_is_refused_before_any_work(workplace: Path) -> None:
    settings = tiny.tiny_settings(workplace, data={"validation_size": 0}, methods={"regmean": {}})
    with pytest.raises(InputError, match=r"data\.validation_size=0, but method 'regmean' selects"):
        check_federations(settings)


def test_public_images_may_be_selected_on(workplace: Path) -> None:
    chosen = {"fedfisher_diag": {"solver": {"name": "paper", "steps": 4, "check_every": 2}}}
    settings = tiny.tiny_settings(workplace, privacy=PRIVATE, data={"public_validation": True}, methods=chosen)
    assert walked.walk(settings).rows["fedfisher_diag"].uses_validation


@pytest.mark.parametrize("public", [False, True])
def test_a_method_that_does_not_say_so_finds_private_images_withheld(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, public: bool
) -> None:
    silent = replace(methods.get("fedavg"), name="silent", function=looks_where_it_can)
    monkeypatch.setitem(methods._things, "silent", silent)
    settings = tiny.tiny_settings(
        workplace, privacy=PRIVATE, data={"public_validation": public}, methods={"silent": {}}
    )
    assert walked.walk(settings).rows["silent"].uses_validation is public


def test_what_a_method_asks_for_after_the_upload_is_refused(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asking = replace(methods.get("fedavg"), name="asking", ranked=False, asks_again=True)
    monkeypatch.setitem(methods._things, "asking", asking)
    with pytest.raises(InputError, match="method 'asking': with privacy, what it asks clients for after their upload"):
        check_federations(tiny.tiny_settings(workplace, privacy=PRIVATE, methods={"asking": {}}))


def test_the_pooled_client_alone_is_one_release(workplace: Path) -> None:
    federations = check_federations(tiny.tiny_settings(workplace, privacy=PRIVATE, methods={"centralised": {}}))
    assert set(federations.methods) == {"centralised"}


def test_the_report_has_both_bounds_on_epsilon(workplace: Path) -> None:
    audit = {"canaries": 20, "guesses": 8}
    done = walked.walk(tiny.tiny_settings(workplace, privacy=PRIVATE, audit=audit))
    job = done.plan.federations.audit(done.federation)
    assert job is not None
    found = read_audit(done.made(job))
    assert (found.canaries, found.guesses) == (20, 8)
    assert 0 <= found.correct <= 8
    row = done.rows["fedavg"]
    assert row.audited_epsilon == found.lower
    assert row.epsilon == pytest.approx(found.upper, rel=1e-3)
    assert 0 <= found.lower <= found.upper <= PRIVATE["epsilon"]


def test_more_canaries_than_examples_are_told(workplace: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = tiny.tiny_settings(workplace, privacy=PRIVATE, audit={"canaries": 10_000, "guesses": 8})
    done = walked.walk(settings)
    job = done.plan.federations.audit(done.federation)
    assert job is not None
    found = read_audit(done.made(job))
    assert f"audit.canaries=10000, and the client has {found.canaries} examples; all of them" in caplog.text


def test_noise_that_is_too_small_for_what_is_claimed_is_found_out(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = Noise(training=1e-3, release=None, epsilon=0.5)
    monkeypatch.setattr(Budget, "noise", lambda *given: silent)
    settings = tiny.tiny_settings(
        workplace,
        partition={"clients": [1]},
        privacy=PRIVATE,
        audit={"canaries": 60, "guesses": 30},
        train={"epochs": 60, "learning_rate": 0.5},
    )
    federations = make_plan(settings).federations
    job = federations.audit(federations.all[0])
    assert job is not None
    outcome = execute([job], open_store(settings.run.store))
    found = read_audit(outcome.artifacts[job.name])
    assert found.lower > found.upper
