import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.data.tensors import Examples
from fedfisher_core.models.evaluation import accuracy, logits, mean_logit, mean_probability, measure


class Table(nn.Module):
    """Answers with the row of logits that its input names."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.rows = rows

    def forward(self, inputs: Tensor) -> Tensor:
        return self.rows[inputs.flatten().long()]


Predict = Callable[[Tensor], Tensor]


def alone(tables: list[Table]) -> list[Predict]:
    return [mean_probability([one], None) for one in tables]


def numbered(labels: list[int]) -> Examples:
    return Examples(inputs=torch.arange(len(labels)).float().reshape(-1, 1, 1, 1), labels=torch.tensor(labels))


def test_every_measure_against_a_slow_transcription() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 300)
    outputs = [rng.normal(size=(300, 4)) + 2 * np.eye(4)[labels] for _ in range(3)]
    counts = np.array([[5, 0, 1, 0], [0, 2, 2, 6]])
    tables = [Table(torch.tensor(one)) for one in outputs]
    measures = measure([mean_probability(tables, None)], numbered(labels.tolist()), torch.tensor(counts))

    probabilities = np.mean([np.exp(o) / np.exp(o).sum(1, keepdims=True) for o in outputs], axis=0)
    predicted = probabilities.argmax(1)
    by_class = np.array([(predicted[labels == label] == label).mean() for label in range(4)])
    assert measures.accuracy == pytest.approx((predicted == labels).mean())
    assert measures.loss == pytest.approx(-np.log(probabilities[np.arange(300), labels]).mean())
    assert measures.worst_class_accuracy == pytest.approx(by_class.min())
    assert measures.worst_client_accuracy == pytest.approx((counts @ by_class / counts.sum(1)).min())
    confusion = np.zeros((4, 4))
    for true, guess in zip(labels, predicted, strict=True):
        confusion[true, guess] += 1
    assert np.array_equal(np.array(measures.confusion), confusion)


def test_the_worst_client_is_found_among_images_as_each_sees_them() -> None:
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 3, 90)
    # Of every network, the first 90 outputs are of the images as they are, the next of what each client sees.
    outputs = [rng.normal(size=(3 * 90, 3)) + 2 * np.eye(3)[np.tile(labels, 3)] for _ in range(2)]
    tables, test = [Table(torch.tensor(one)) for one in outputs], numbered(labels.tolist())
    counts = np.array([[4, 0, 1], [1, 1, 5]])

    def seen(client: int) -> Tensor:
        return test.inputs + 90 * (1 + client)

    def worst(chosen: list[np.ndarray]) -> float:
        logs = [np.log(np.exp(one) / np.exp(one).sum(1, keepdims=True)) for one in chosen]
        right = np.exp(logs).mean(0).argmax(1) == np.tile(labels, 3)
        views = [right[90:180], right[180:]]
        each = [
            sum(share * view[labels == label].mean() for label, share in enumerate(own)) / own.sum()
            for own, view in zip(counts, views, strict=True)
        ]
        return float(min(each))

    given, plain = torch.tensor(counts), measure([mean_probability(tables, None)], test, torch.tensor(counts))
    together = measure([mean_probability(tables, None)], test, given, seen=seen)
    assert together.worst_client_accuracy == pytest.approx(worst(outputs))
    assert dataclasses.replace(together, worst_client_accuracy=plain.worst_client_accuracy) == plain
    each = measure(alone(tables), test, given, seen=seen)
    assert each.worst_client_accuracy == pytest.approx(np.mean([worst([one]) for one in outputs]))
    first = measure([mean_logit(tables[:1], None)], test, given, seen=seen)
    assert first.worst_client_accuracy == pytest.approx(worst(outputs[:1]))


def test_the_worst_client_is_found_among_clients_own_images() -> None:
    rng = np.random.default_rng(6)
    labels = rng.integers(0, 3, 60)
    # The first 60 outputs are of the images as they are, the next of what clients 0 to 3 see.
    outputs = [rng.normal(size=(5 * 60, 3)) + 1.5 * np.eye(3)[np.tile(labels, 5)] for _ in range(2)]
    tables, test = [Table(torch.tensor(one)) for one in outputs], numbered(labels.tolist())
    # Two clients share images, and the third has none.
    rows = [[0, 1, 5, 40], [*range(10, 40)], [], [*range(30, 60)]]
    own, counts = [torch.tensor(one, dtype=torch.int64) for one in rows], torch.ones(4, 3)

    def worst(logits: list[np.ndarray], *, seen: bool) -> float:
        right = np.mean([np.exp(one) / np.exp(one).sum(1, keepdims=True) for one in logits], 0).argmax(1)
        right = right == np.tile(labels, 5)
        views = [right[60 * (1 + client) if seen else 0 :][:60] for client in range(4)]
        return min(float(views[client][mine].mean()) for client, mine in enumerate(rows) if mine)

    def shown(client: int) -> Tensor:
        return test.inputs + 60 * (1 + client)

    plain = measure([mean_probability(tables, None)], test, counts)
    for seen, views in ((False, None), (True, shown)):
        together = measure([mean_probability(tables, None)], test, counts, seen=views, own=own)
        assert together.worst_client_accuracy == pytest.approx(worst(outputs, seen=seen))
        assert dataclasses.replace(together, worst_client_accuracy=plain.worst_client_accuracy) == plain
        each = measure(alone(tables), test, counts, seen=views, own=own)
        assert each.worst_client_accuracy == pytest.approx(np.mean([worst([one], seen=seen) for one in outputs]))
        first = measure([mean_logit(tables[:1], None)], test, counts, seen=views, own=own)
        assert first.worst_client_accuracy == pytest.approx(worst(outputs[:1], seen=seen))


def test_weights_favour_networks_class_by_class() -> None:
    rng = np.random.default_rng(1)
    labels = [0, 1, 2, 1, 0]
    outputs, weights = rng.normal(size=(2, 5, 3)), np.array([[1.0, 0.2, 0.0], [0.0, 0.8, 1.0]])
    tables = [Table(torch.tensor(o)) for o in outputs]
    measures = measure([mean_probability(tables, torch.tensor(weights))], numbered(labels), torch.ones(1, 3))

    each = np.exp(outputs) / np.exp(outputs).sum(2, keepdims=True)
    joined = (weights[:, None, :] * each).sum(0)
    joined /= joined.sum(1, keepdims=True)
    assert measures.loss == pytest.approx(-np.log(joined[range(5), labels]).mean())
    assert measures.accuracy == pytest.approx((joined.argmax(1) == labels).mean())


def test_mean_outputs_are_taken_before_the_softmax() -> None:
    rng = np.random.default_rng(2)
    labels = [0, 1, 2, 1, 0]
    outputs = rng.normal(size=(3, 5, 3))
    tables = [Table(torch.tensor(one)) for one in outputs]
    measures = measure([mean_logit(tables, None)], numbered(labels), torch.ones(1, 3))

    mean = np.exp(outputs.mean(0))
    assert measures.loss == pytest.approx(-np.log((mean / mean.sum(1, keepdims=True))[range(5), labels]).mean())


def test_accuracy_of_one_network_is_its_own() -> None:
    table, test = Table(torch.randn(20, 3, generator=torch.Generator().manual_seed(0))), numbered([0, 1, 2, 1] * 5)
    assert measure(alone([table]), test, torch.ones(2, 3)).accuracy == accuracy(table, test)


def test_measures_of_several_networks_are_averaged() -> None:
    right, wrong = Table(9 * torch.eye(3)[[0, 1, 2]]), Table(9 * torch.eye(3)[[1, 2, 0]])
    measures = measure(alone([right, wrong]), numbered([0, 1, 2]), torch.ones(1, 3))
    assert measures.accuracy == 0.5
    assert measures.confusion[0] == (0.5, 0.5, 0.0)


def test_a_class_without_test_images_counts_nowhere() -> None:
    table = Table(9 * torch.eye(3)[[0, 0, 1, 0]])
    counts = torch.tensor([[1, 1, 98], [0, 0, 7]])
    measures = measure(alone([table]), numbered([0, 0, 1, 1]), counts)
    assert measures.worst_class_accuracy == 0.5
    assert measures.worst_client_accuracy == pytest.approx(0.75)


def test_clients_without_any_class_of_the_test_images_are_refused() -> None:
    table = Table(9 * torch.eye(3)[[0, 0]])
    with pytest.raises(ArithmeticError, match="no client holds an example of a class that the test images have"):
        measure(alone([table]), numbered([0, 1]), torch.tensor([[0, 0, 7]]))


def test_a_confidently_wrong_network_has_a_finite_loss() -> None:
    measures = measure(alone([Table(torch.tensor([[1e4, 0.0]]))]), numbered([1]), torch.ones(1, 2))
    assert measures.loss == pytest.approx(1e4)
    assert math.isfinite(measures.loss)


def test_logits_do_not_depend_on_how_images_are_grouped() -> None:
    rows = torch.randn(2500, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(logits(Table(rows), torch.arange(2500).float().reshape(-1, 1, 1, 1)), rows)


@pytest.mark.parametrize(
    "predictors",
    [lambda two: [mean_probability(two, None)], lambda two: [mean_logit(two, None)], lambda two: alone(two)],
    ids=["mean probability", "mean logit", "mean measure"],
)
def test_outputs_that_are_not_finite_are_counted_and_refused(
    predictors: Callable[[list[Table]], list[Predict]],
) -> None:
    rows = torch.zeros(5, 2)
    rows[1, 0], rows[3] = torch.inf, torch.nan
    counts = torch.ones(1, 2, dtype=torch.int64)
    with pytest.raises(ArithmeticError, match="the outputs on 2 of 5 test images are not finite"):
        measure(predictors([Table(torch.zeros(5, 2)), Table(rows)]), numbered([0, 1, 1, 0, 1]), counts)
