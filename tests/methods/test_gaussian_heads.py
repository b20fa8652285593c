"""FedCGS and GH-LDA against classifiers that are written out for all data in one place."""

import math
import re
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
from fedfisher_core.methods.shared.gaussian_heads import ABSENT_PRIOR, terms
from fedfisher_core.models.spec import ModelSpec, Parameters
from tests import tiny
from tests.methods.clients import aggregate, bind_written

CLASSES, FEATURES = tiny.CLASSES, 5
SPEC = ModelSpec("linear", Vectors(FEATURES), classes=CLASSES, bias=True)
METHODS = ("fedcgs", "gh_lda")
by_method = pytest.mark.parametrize("name", METHODS)


def data(count: int = 300, *, seed: int = 0, classes: int = CLASSES) -> Examples:
    """Correlated features with a mean of its own for each class, which have different numbers of examples."""
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(count, generator=generator) ** 2 * classes).long()
    mixed = torch.eye(FEATURES) + torch.rand(FEATURES, FEATURES, generator=generator) / 2
    noise = torch.randn(count, FEATURES, generator=generator) @ mixed
    return Examples(noise + 2 * torch.randn(CLASSES, FEATURES, generator=generator)[labels] + 3, labels)


def uploads(examples: Examples, parts: Sequence[Tensor]) -> list[Upload]:
    made = []
    for part in parts:
        held = Examples(examples.inputs[part], examples.labels[part])
        local = tiny.local(SPEC.load(tiny.initial(SPEC)), held)
        made.append(Upload(len(held), {kind: kind.compute(local) for kind in (LabelCounts, ClassSums, Gram)}))
    return made


def merged(name: str, examples: Examples, parts: Sequence[Tensor] | None = None, **settings: float) -> Parameters:
    made = uploads(examples, [torch.arange(len(examples))] if parts is None else parts)
    return aggregate(name, made, spec=SPEC, **settings).networks[0]


def logits(head: Parameters, inputs: Tensor) -> Tensor:
    return inputs.double() @ head["head.weight"].double().T + head["head.bias"].double()


def slow(name: str, examples: Examples, amount: float) -> Tensor:
    """Log-densities of normal distributions with one covariance, each less its value at 0, by brute force."""
    rows = examples.inputs.double()
    means = torch.stack([rows[examples.labels == label].mean(0) for label in range(CLASSES)])
    centred = rows - (rows.mean(0) if name == "fedcgs" else means[examples.labels])
    covariance = torch.zeros(FEATURES, FEATURES, dtype=torch.float64)
    for row in centred:
        covariance += torch.outer(row, row) / (len(rows) - (1 if name == "fedcgs" else CLASSES))
    mean_variance = covariance.trace() / FEATURES * torch.eye(FEATURES, dtype=torch.float64)
    if name == "fedcgs":
        covariance = covariance + amount * mean_variance
    else:
        covariance = (1 - amount) * covariance + amount * mean_variance
    priors = torch.bincount(examples.labels) / len(rows)
    columns = [
        torch.distributions.MultivariateNormal(mean, covariance).log_prob(rows) + prior.log()
        for mean, prior in zip(means, priors, strict=True)
    ]
    return torch.stack(columns, dim=1)


def test_a_client_that_counts_as_a_smaller_one_has_the_same_classes() -> None:
    (whole,) = uploads(data(), [torch.arange(300)])
    smaller = Upload(64, whole.statistics)
    torch.testing.assert_close(terms(smaller), terms(whole))


@pytest.mark.parametrize("amount", [0.0, 0.05, 0.7])
@by_method
def test_predictions_are_those_of_normal_distributions(name: str, amount: float) -> None:
    examples = data()
    setting = {"fedcgs": "ridge", "gh_lda": "shrinkage"}[name]
    found = logits(merged(name, examples, **{setting: amount}), examples.inputs).log_softmax(1)
    expected = slow(name, examples, amount).log_softmax(1)
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert expected.max(1).values.exp().min() < 0.9


def test_the_two_differ_though_nothing_is_added() -> None:
    examples = data()
    found = [logits(merged("fedcgs", examples, ridge=0), examples.inputs)]
    found += [logits(merged("gh_lda", examples, shrinkage=0), examples.inputs)]
    one, other = (each.softmax(1) for each in found)
    assert (one - other).abs().max() > 0.05


@by_method
def test_every_split_of_the_data_gives_the_same(name: str) -> None:
    examples, generator = data(), torch.Generator().manual_seed(1)
    whole = merged(name, examples)
    order = torch.randperm(len(examples), generator=generator)
    splits = [
        [(examples.labels == label).nonzero().flatten() for label in range(CLASSES)],
        list(order.split([1, 9, 90, 200])),
        [order[0::3], order[1::3], order[2::3]],
    ]
    for parts in splits:
        assert sum(map(len, parts)) == len(examples)
        found = merged(name, examples, parts)
        for key, tensor in whole.items():
            assert torch.allclose(found[key], tensor, rtol=1e-4, atol=1e-5), key


@by_method
def test_a_class_that_nobody_has_is_never_predicted(name: str) -> None:
    examples = data(classes=CLASSES - 1)
    assert set(examples.labels.tolist()) == {0, 1}
    head = merged(name, examples)
    far = torch.cat([examples.inputs, 1e3 * torch.randn(500, FEATURES, generator=torch.Generator().manual_seed(2))])
    shares = logits(head, far).log_softmax(1)[:, 2]
    assert shares.max() <= math.log(ABSENT_PRIOR) + 1e-2
    assert torch.isfinite(shares).all()


@by_method
def test_the_others_are_not_changed_by_a_class_that_nobody_has(name: str) -> None:
    examples = data(classes=CLASSES - 1)
    fewer = ModelSpec("linear", Vectors(FEATURES), classes=CLASSES - 1, bias=True)
    head = merged(name, examples)
    cut = [
        Upload(
            one.num_examples,
            {
                LabelCounts: LabelCounts({"counts": one[LabelCounts].tensors["counts"][:-1]}),
                ClassSums: ClassSums({"sums": one[ClassSums].tensors["sums"][:-1]}),
                Gram: one[Gram],
            },
        )
        for one in uploads(examples, [torch.arange(len(examples))])
    ]
    (expected,) = aggregate(name, cut, spec=fewer).networks
    assert all(torch.allclose(head[key][:-1], tensor, rtol=1e-5) for key, tensor in expected.items())


@by_method
def test_one_example_of_each_class_has_a_head(name: str) -> None:
    inputs = torch.tensor([[1.0, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0]])
    examples = Examples(inputs, torch.arange(CLASSES))
    for parts in (None, list(torch.arange(CLASSES).split(1))):
        head = merged(name, examples, parts)
        assert all(torch.isfinite(tensor).all() for tensor in head.values())
        if name == "fedcgs":
            assert logits(head, inputs).argmax(1).tolist() == [0, 1, 2]


@by_method
def test_a_class_with_one_example_is_found_by_its_mean(name: str) -> None:
    examples = data(classes=CLASSES - 1)
    lonely = torch.full((1, FEATURES), -20.0)
    both = Examples(torch.cat([examples.inputs, lonely]), torch.cat([examples.labels, torch.tensor([2])]))
    assert logits(merged(name, both), lonely).argmax().item() == 2


@by_method
def test_features_that_do_not_vary_have_no_say(name: str) -> None:
    examples = data()
    inputs = examples.inputs.clone()
    inputs[:, 0], inputs[:, 3] = 0.7, inputs[:, 1]
    still = Examples(inputs, examples.labels)
    nothing = {"ridge": 0.0} if name == "fedcgs" else {"shrinkage": 0.0}
    head = merged(name, still, **nothing)
    assert head["head.weight"][:, 0].abs().max() < 1e-3
    assert head["head.weight"][:, 1].abs().max() > 1e-2
    assert torch.allclose(head["head.weight"][:, 1], head["head.weight"][:, 3], atol=1e-3)


@by_method
def test_without_any_variance_the_most_frequent_class_is_predicted(name: str) -> None:
    examples = Examples(torch.full((6, FEATURES), 2.0), torch.tensor([0, 1, 1, 1, 2, 2]))
    found = logits(merged(name, examples), examples.inputs).softmax(1)
    assert torch.allclose(found[0], torch.tensor([1 / 6, 1 / 2, 1 / 3], dtype=torch.float64), atol=1e-3)


@by_method
def test_a_layer_without_a_bias_is_refused(name: str) -> None:
    message = re.escape(
        f"method '{name}' can't serve model 'linear': model.bias=false: the closed form has a bias, which is no part "
        "of its weights; allowed: true"
    )
    with pytest.raises(InputError, match=message):
        bind_written(name, {}, [tiny.LINEAR])


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("fedcgs", {"ridge": -0.1}, r"methods\.fedcgs\.ridge=-0\.1: "),
        ("fedcgs", {"ridge": float("inf")}, r"methods\.fedcgs\.ridge=inf: "),
        ("gh_lda", {"shrinkage": 1.1}, r"methods\.gh_lda\.shrinkage=1\.1: "),
        ("gh_lda", {"shrinkage": -0.1}, r"methods\.gh_lda\.shrinkage=-0\.1: "),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(name: str, settings: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        bind_written(name, settings, [SPEC])
