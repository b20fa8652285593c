import pytest
import torch

from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import methods
from fedfisher_core.methods.server import Combine
from fedfisher_core.models.evaluation import accuracy, mean_probability, measure
from tests import tiny
from tests.methods.clients import aggregate, server, trained_uploads

COUNTS = torch.tensor([[5, 1, 0], [0, 4, 2], [1, 1, 1]])


@pytest.fixture(scope="module")
def clients() -> list[Upload]:
    return trained_uploads()


def test_an_ensemble_predicts_by_the_mean_of_probabilities(clients: list[Upload]) -> None:
    result = aggregate("ensemble", clients)
    assert result.combine is Combine.MEAN_PROBABILITY
    networks = [tiny.TINY.load(network).eval() for network in result.networks]
    test = tiny.examples(50, seed=7)
    with torch.no_grad():
        probabilities = [tiny.TINY.load(one[Weights].tensors)(test.inputs).softmax(1) for one in clients]
    mean = (probabilities[0] + probabilities[1] + probabilities[2]) / 3
    measures = measure([mean_probability(networks, None)], test, COUNTS)
    assert measures.accuracy == pytest.approx((mean.argmax(1) == test.labels).double().mean().item())
    assert measures.loss == pytest.approx(-mean[torch.arange(50), test.labels].log().mean().item(), abs=1e-5)


def test_an_ensemble_of_outputs_keeps_all_networks(clients: list[Upload]) -> None:
    result = aggregate("ensemble_logits", clients)
    assert result.combine is Combine.MEAN_LOGIT
    assert len(result.networks) == 3


def test_networks_count_by_the_labels_they_saw(clients: list[Upload]) -> None:
    counted = [
        Upload(one.num_examples, dict(one.statistics) | {LabelCounts: LabelCounts({"counts": counts})})
        for one, counts in zip(clients, torch.tensor([[3.0, 0, 0], [1, 4, 0], [0, 4, 0]]), strict=True)
    ]
    weights = aggregate("ensemble_by_labels", counted).weights
    assert weights is not None
    # No client holds the last class.
    assert torch.allclose(weights, torch.tensor([[0.75, 0, 1 / 3], [0.25, 0.5, 1 / 3], [0, 0.5, 1 / 3]]).double())


def test_local_models_are_measured_by_themselves(clients: list[Upload]) -> None:
    result = aggregate("local_mean", clients)
    assert result.combine is Combine.MEAN_MEASURE
    networks = [tiny.TINY.load(network).eval() for network in result.networks]
    test = tiny.examples(50, seed=7)
    predictors = [mean_probability([network], None) for network in networks]
    alone = [measure([one], test, COUNTS) for one in predictors]
    together = measure(predictors, test, COUNTS)
    for field in ("accuracy", "loss", "worst_class_accuracy", "worst_client_accuracy"):
        assert getattr(together, field) == pytest.approx(sum(getattr(one, field) for one in alone) / 3)
    assert len({one.accuracy for one in alone}) > 1


def test_the_best_local_model_is_chosen_on_the_validation_set(clients: list[Upload]) -> None:
    result = aggregate("best_local", clients)
    scores = [accuracy(tiny.TINY.load(one[Weights].tensors).eval(), server().validation) for one in clients]
    assert len(set(scores)) > 1
    best = scores.index(max(scores))
    assert result.details == {"client": float(best), "validation_accuracy": max(scores)}
    assert all(torch.equal(result.networks[0][key], one) for key, one in clients[best][Weights].tensors.items())


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]])
def test_of_equally_good_local_models_the_one_of_more_examples_is_best(clients: list[Upload], order: list[int]) -> None:
    same = [Upload(size, clients[0].statistics) for size in (10, 30, 20)]
    result = aggregate("best_local", [same[index] for index in order])
    assert result.details["client"] == order.index(1)


def test_centralised_training_returns_the_one_pooled_model(clients: list[Upload]) -> None:
    (network,) = aggregate("centralised", clients[:1]).networks
    assert all(torch.equal(network[key], tensor) for key, tensor in clients[0][Weights].tensors.items())


def test_ensembles_and_references_are_not_ranked() -> None:
    ranked = {name: methods.get(name).ranked for name in methods}
    assert {"fedavg", "fisher_merge", "regmean", "fedfisher_diag", "fedfisher_kfac", "dense"} <= {
        name for name, is_ranked in ranked.items() if is_ranked
    }
    assert not any(
        ranked[name]
        for name in (
            "ensemble",
            "ensemble_logits",
            "ensemble_by_labels",
            "ensemble_by_holders",
            "local_mean",
            "best_local",
            "centralised",
        )
    )
    assert [name for name in methods if methods.get(name).pooled] == ["centralised"]
