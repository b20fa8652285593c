"""Features of a batch: what the last layer reads, now and under other weights."""

import pytest
import torch
from torch import nn

from fedfisher_core.client.local import Features, last_layer
from fedfisher_core.data.layouts import Images
from fedfisher_core.engine.errors import UnsupportedLayerError
from fedfisher_core.models.layers import begin_training
from fedfisher_core.models.spec import ModelSpec
from tests import tiny


def hidden(weights: dict[str, torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
    """Compute what the tiny network's head reads."""
    network = tiny.TINY.load(weights)
    maps = torch.relu(network.conv(inputs))
    return torch.relu(network.hidden(maps.flatten(1)))


def test_features_are_what_the_last_layer_reads_under_any_weights() -> None:
    one, other = tiny.initial(seed=0), tiny.initial(seed=1)
    inputs = tiny.examples(7).inputs
    network = tiny.TINY.load(one)
    features = Features(network)
    network(inputs)
    torch.testing.assert_close(features.now, hidden(one, inputs))
    torch.testing.assert_close(features.under(other), hidden(other, inputs))
    assert features.now.requires_grad
    assert not features.under(other).requires_grad
    # Looking under other weights leaves the features as they are.
    torch.testing.assert_close(features.now, hidden(one, inputs))


def test_features_follow_the_network_while_it_is_trained() -> None:
    inputs = tiny.examples(5).inputs
    network = tiny.TINY.load(tiny.initial())
    features = Features(network)
    network(inputs).sum().backward()
    torch.optim.SGD(network.parameters(), lr=1.0).step()
    network(inputs)
    torch.testing.assert_close(features.now, hidden(dict(network.named_parameters()), inputs))


def test_features_under_other_weights_are_without_dropout() -> None:
    spec = ModelSpec("ma_echo_cnn", Images(1, 8, 8), classes=3, widths=(3, 4, 5, 6, 7))
    parameters = tiny.initial(spec)
    network = spec.load(parameters)
    features = Features(network)
    begin_training(network, torch.Generator().manual_seed(0))
    inputs = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    network(inputs)
    dropped, kept = features.now, features.under(parameters)
    network.eval()(inputs)
    assert torch.equal(kept, features.now)
    assert not torch.equal(kept, dropped)


def test_features_need_a_batch() -> None:
    with pytest.raises(RuntimeError, match="before the network was given a batch"):
        _ = Features(tiny.TINY.load(tiny.initial())).now


@pytest.mark.parametrize("network", [nn.Linear(3, 2), nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2))])
def test_networks_without_a_layer_before_a_linear_last_one_have_none(network: nn.Module) -> None:
    with pytest.raises(UnsupportedLayerError, match=r"no feature map.*allowed"):
        last_layer(network)
