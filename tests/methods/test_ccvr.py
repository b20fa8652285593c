"""A mean of networks whose head is trained anew on features that are drawn."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.client.statistics.class_gaussians import ClassGaussians, Covariance
from fedfisher_core.client.statistics.feature_gaussians import FeatureGaussians
from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.ccvr import pooled
from fedfisher_core.methods.server import Aggregate
from fedfisher_core.models.evaluation import accuracy
from fedfisher_core.models.spec import ModelSpec, Parameters, model
from tests import arranged, tiny
from tests.methods.clients import aggregate, bind_written

SPEC = tiny.TINY_WITH_BIAS
COVARIANCES: tuple[Covariance, ...] = ("diagonal", "spherical", "full")
by_covariance = pytest.mark.parametrize("covariance", COVARIANCES)


def of_class(label: int, count: int, *, seed: int) -> Examples:
    many = tiny.examples(10 * count, seed=seed)
    chosen = (many.labels == label).nonzero().flatten()[:count]
    return Examples(many.inputs[chosen], many.labels[chosen])


def upload(weights: Parameters, held: Examples, covariance: Covariance = "diagonal") -> Upload:
    local = tiny.local(SPEC.load(weights), held)
    sent = {
        Weights: Weights(weights),
        LabelCounts: LabelCounts.compute(local),
        FeatureGaussians: FeatureGaussians.compute(local, covariance=covariance),
    }
    return Upload(len(held), sent)


def features(weights: Parameters, inputs: Tensor) -> Tensor:
    """What the last layer of the tiny network sees, by hand."""
    maps = functional.conv2d(inputs, weights["conv.weight"], weights["conv.bias"], stride=2, padding=1).relu()
    return functional.linear(maps.flatten(1), weights["hidden.weight"], weights["hidden.bias"]).relu()


def refitted(uploads: list[Upload], **settings: Any) -> Aggregate:
    return aggregate("ccvr", uploads, spec=SPEC, **settings)


@by_covariance
def test_features_are_those_of_the_clients_own_network(covariance: Covariance) -> None:
    weights, held = tiny.initial(SPEC), tiny.examples(30)
    linear = ModelSpec("linear", arranged.Vectors(5), classes=tiny.CLASSES)
    seen = Examples(features(weights, held.inputs), held.labels)
    expected = ClassGaussians.compute(tiny.local(linear.load(tiny.initial(linear)), seen), covariance=covariance)
    found = upload(weights, held, covariance)[FeatureGaussians].tensors
    assert {name: tensor.shape for name, tensor in found.items()} == FeatureGaussians.shapes(
        SPEC, covariance=covariance
    )
    for name, tensor in expected.tensors.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-6)


@by_covariance
def test_pooled_distributions_are_those_of_all_examples_in_one_place(covariance: Covariance) -> None:
    weights, whole = tiny.initial(SPEC), tiny.examples(90)
    parts = [Examples(whole.inputs[rows], whole.labels[rows]) for rows in torch.arange(90).split([20, 30, 40])]
    found, counts = pooled([upload(weights, part, covariance) for part in parts])
    expected = upload(weights, whole, covariance)
    assert torch.equal(counts, expected[LabelCounts].tensors["counts"].double())
    for name, tensor in expected[FeatureGaussians].tensors.items():
        torch.testing.assert_close(found.tensors[name], tensor, rtol=1e-4, atol=1e-5)


def test_a_class_with_one_example_at_a_client_has_no_part() -> None:
    weights = tiny.initial(SPEC)
    many, one = of_class(0, 20, seed=0), of_class(0, 1, seed=1)
    found, counts = pooled([upload(weights, many), upload(weights, one)])
    assert counts.tolist() == [20, 0, 0]
    for name, tensor in upload(weights, many)[FeatureGaussians].tensors.items():
        torch.testing.assert_close(found.tensors[name], tensor)


def test_the_body_is_the_mean_and_the_head_is_not() -> None:
    uploads = [upload(tiny.initial(SPEC, seed=seed), tiny.examples(30, seed=seed)) for seed in range(2)]
    (found,) = refitted(uploads).networks
    (mean,) = aggregate("fedavg", uploads, spec=SPEC).networks
    assert [name for name in mean if not torch.equal(found[name], mean[name])] == ["head.weight", "head.bias"]


def test_clients_with_one_class_each_get_a_head_for_all() -> None:
    weights = tiny.initial(SPEC, seed=3)
    uploads = [upload(weights, of_class(label, 40, seed=label), "full") for label in range(tiny.CLASSES)]
    result = refitted(uploads, epochs=30, learning_rate=0.05)
    assert result.details["drawn"] == 2000 * tiny.CLASSES
    test = tiny.examples(300, seed=50)
    before = accuracy(SPEC.load(weights).eval(), test)
    assert accuracy(SPEC.load(result.networks[0]).eval(), test) > before + 0.15


def test_a_class_that_is_rare_is_drawn_as_often_as_others() -> None:
    weights = tiny.initial(SPEC)
    both = [of_class(0, 60, seed=0), of_class(1, 3, seed=1)]
    held = Examples(*(torch.cat([getattr(one, name) for one in both]) for name in ("inputs", "labels")))
    sent = upload(weights, held)
    tensors = sent[FeatureGaussians].tensors
    # Where both have the same features, neither class is more likely.
    for name in tensors:
        tensors[name][1] = tensors[name][0]
    (network,) = refitted([sent], epochs=50, learning_rate=0.05).networks
    outputs = functional.linear(tensors["means"][:1], network["head.weight"], network["head.bias"])
    shares = outputs.softmax(1)[0]
    assert shares[2] < 0.05
    assert abs(shares[0] - shares[1]) < 0.1


def test_classes_with_one_example_leave_the_mean() -> None:
    sent = upload(tiny.initial(SPEC), of_class(0, 1, seed=0))
    result = refitted([sent])
    assert result.details == {"drawn": 0.0}
    assert all(torch.equal(result.networks[0][name], tensor) for name, tensor in tiny.initial(SPEC).items())


def test_a_training_that_diverges_is_an_error_that_names_the_rate() -> None:
    sent = upload(tiny.initial(SPEC), tiny.examples(30))
    sent[FeatureGaussians].tensors["means"].mul_(1e30)
    with pytest.raises(ArithmeticError, match="learning_rate=1e"):
        refitted([sent], learning_rate=1e30)


@model("convolution_alone")
class ConvolutionAlone(nn.Module):
    """Its filters are the classes."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.conv = nn.Conv2d(spec.inputs.channels, spec.classes, kernel_size=3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.conv(inputs).mean((2, 3))


def test_a_last_layer_that_is_not_linear_is_refused() -> None:
    message = "can't serve model 'convolution_alone': layer 'conv' has type Conv2d; allowed: networks whose last layer"
    with pytest.raises(InputError, match=message):
        bind_written("ccvr", {}, [ModelSpec("convolution_alone", tiny.TINY.inputs, classes=3)])


@pytest.mark.parametrize("name", ["draws", "epochs", "batch_size", "learning_rate"])
def test_a_wrong_setting_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(InputError, match=rf"methods\.ccvr\.{name}=0: "):
        bind_written("ccvr", {name: 0}, [SPEC])
