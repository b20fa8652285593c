"""AFL against ridge regression on all data in one place."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fedfisher_core.client.statistics.class_sums import ClassSums
from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.layouts import Vectors
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.spec import ModelSpec, Parameters
from tests import tiny
from tests.methods.clients import aggregate, bind_written

FEATURES = 5
BIASED = ModelSpec("linear", Vectors(FEATURES), classes=tiny.CLASSES, bias=True)
UNBIASED = ModelSpec("linear", Vectors(FEATURES), classes=tiny.CLASSES)
by_bias = pytest.mark.parametrize("spec", [BIASED, UNBIASED], ids=["bias", "no bias"])


def data(count: int = 200, *, classes: int = tiny.CLASSES) -> Examples:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(classes, (count,), generator=generator)
    mixed = torch.randn(count, FEATURES, generator=generator) @ torch.randn(FEATURES, FEATURES, generator=generator)
    return Examples(mixed + 2 * torch.randn(tiny.CLASSES, FEATURES, generator=generator)[labels] + 1, labels)


def merged(spec: ModelSpec, examples: Examples, parts: Sequence[Tensor], **settings: float) -> Parameters:
    uploads = []
    for part in parts:
        held = Examples(examples.inputs[part], examples.labels[part])
        local = tiny.local(spec.load(tiny.initial(spec)), held)
        uploads.append(Upload(len(held), {kind: kind.compute(local) for kind in (LabelCounts, ClassSums, Gram)}))
    return aggregate("afl", uploads, spec=spec, **settings).networks[0]


def pooled(spec: ModelSpec, examples: Examples, ridge: float) -> Parameters:
    """Least squares with one more row for every weight, whose target is 0; a bias has a column of ones, and no row."""
    rows, size = examples.inputs.double(), FEATURES
    centred = rows - rows.mean(0) if spec.bias else rows
    penalties = (ridge * centred.square().sum(0).mean()).sqrt() * torch.eye(size, dtype=torch.float64)
    targets = torch.nn.functional.one_hot(examples.labels, tiny.CLASSES).double()
    inputs = torch.cat([rows, penalties])
    if spec.bias:
        inputs = torch.cat([inputs, torch.cat([torch.ones(len(rows)), torch.zeros(size)])[:, None]], dim=1)
    solved = torch.linalg.lstsq(inputs, torch.cat([targets, torch.zeros(size, tiny.CLASSES)])).solution.float()
    return {"head.weight": solved[:size].T} | ({"head.bias": solved[size]} if spec.bias else {})


@by_bias
@pytest.mark.parametrize("ridge", [0.0, 0.1, 2.0])
@pytest.mark.parametrize("split", ["one client", "one class a client", "uneven"])
def test_every_split_gives_ridge_regression_on_all_data(spec: ModelSpec, ridge: float, split: str) -> None:
    examples = data()
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(1))
    parts = {
        "one client": [order],
        "one class a client": [(examples.labels == label).nonzero().flatten() for label in range(tiny.CLASSES)],
        "uneven": list(order.split([1, 3, 46, 150])),
    }[split]
    found, expected = merged(spec, examples, parts, ridge=ridge), pooled(spec, examples, ridge)
    assert list(found) == list(expected)
    for key, tensor in expected.items():
        torch.testing.assert_close(found[key], tensor, rtol=1e-3, atol=1e-5)


def absorbed(weight: Tensor, gram: Tensor, other: Tensor, others: Tensor) -> Tensor:
    """The paper's absolute aggregation law for two regressions with their Gram matrices."""
    one = torch.eye(len(gram), dtype=torch.float64)
    r, q, s = gram.inverse(), others.inverse(), (gram + others).inverse()
    own = one - r @ others + r @ others @ s @ others
    theirs = one - q @ gram + q @ gram @ s @ gram
    return own @ weight + theirs @ other


# A client with fewer examples than features has a regression of its own with a ridge alone.
@pytest.mark.parametrize(("ridge", "sizes"), [(0.0, [60, 40, 100]), (0.1, [3, 97, 100])])
def test_clients_regressions_are_merged_as_the_absolute_aggregation_law_says(ridge: float, sizes: list[int]) -> None:
    examples = data()
    rows, targets = examples.inputs.double(), torch.nn.functional.one_hot(examples.labels).double()
    part = ridge * rows.square().sum(0).mean() / len(sizes) * torch.eye(FEATURES, dtype=torch.float64)
    grams = [one.T @ one + part for one in rows.split(sizes)]
    regressions = [
        torch.linalg.solve(gram, one.T @ to)
        for gram, one, to in zip(grams, rows.split(sizes), targets.split(sizes), strict=True)
    ]
    law, total = regressions[0], grams[0]
    for regression, gram in zip(regressions[1:], grams[1:], strict=True):
        law, total = absorbed(law, total, regression, gram), total + gram
    found = merged(UNBIASED, examples, torch.arange(200).split(sizes), ridge=ridge)
    torch.testing.assert_close(found["head.weight"], law.T.float(), rtol=1e-3, atol=1e-5)


@by_bias
def test_features_that_depend_on_each_other_get_the_shortest_weights(spec: ModelSpec) -> None:
    examples = data()
    inputs = examples.inputs.clone()
    inputs[:, 3] = inputs[:, 1]
    found = merged(spec, Examples(inputs, examples.labels), [torch.arange(200)], ridge=0)["head.weight"]
    assert found[:, 1].abs().max() > 1e-2
    torch.testing.assert_close(found[:, 1], found[:, 3], rtol=1e-3, atol=1e-4)


def test_a_class_that_no_client_has_is_not_predicted() -> None:
    head = merged(BIASED, data(classes=2), [torch.arange(200)])
    far = 1e3 * torch.randn(500, FEATURES, generator=torch.Generator().manual_seed(2))
    assert set((far @ head["head.weight"].T + head["head.bias"]).argmax(1).tolist()) == {0, 1}


@pytest.mark.parametrize("ridge", [-0.1, math.inf])
def test_a_wrong_ridge_is_refused_by_its_name(ridge: float) -> None:
    with pytest.raises(InputError, match=rf"methods\.afl\.ridge={ridge:g}: "):
        bind_written("afl", {"ridge": ridge}, [BIASED])
