"""Steps of local training against torch's own optimiser, bit by bit."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedfisher_core.client.training import Descent
from fedfisher_core.data.layouts import Images, Layout, Texts, Tokens, Vectors
from fedfisher_core.data.tensors import augment
from fedfisher_core.models.layers import begin_training
from fedfisher_core.models.spec import Lora, ModelSpec, models
from fedfisher_core.settings import TrainSettings
from tests import tiny
from tests.models.trunks.installed import weights_of

EXAMPLES = tiny.examples(30)
COLOURED = Images(3, 32, 32)


def network() -> nn.Module:
    return tiny.TINY_WITH_BIAS.load(tiny.initial(tiny.TINY_WITH_BIAS))


def loss_of(model: nn.Module, step: int) -> torch.Tensor:
    batch = slice(10 * (step % 3), 10 * (step % 3) + 10)
    return functional.cross_entropy(model(EXAMPLES.inputs[batch]), EXAMPLES.labels[batch])


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_steps_are_those_of_torch_s_optimiser_to_the_last_bit(momentum: float, weight_decay: float) -> None:
    settings = TrainSettings(learning_rate=0.1, momentum=momentum, weight_decay=weight_decay)
    ours, theirs = network(), network()
    descent = Descent(ours, settings)
    optimiser = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=momentum, weight_decay=weight_decay, fused=True)
    for step in range(5):
        descent.step(loss_of(ours, step))
        optimiser.zero_grad()
        loss_of(theirs, step).backward()
        optimiser.step()
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(one, other)


NETWORKS = [
    *((name, COLOURED) for name in ("linear", "mlp", "compact", "lenet", "cnn", "cnn_padded", "ma_echo_cnn")),
    *((name, COLOURED) for name in ("resnet18", "resnet18_batch_norm", "resnet18_tiny_imagenet")),
    *((name, COLOURED) for name in ("efficientnet_lite0", "mobilenet_v2")),
    *((name, Tokens(7, 11)) for name in ("gru", "transformer")),
    *((name, Texts(7, 30_522, padding=0)) for name in ("minilm", "minilm/lora")),
    *((name, Vectors(13)) for name in ("linear", "mlp")),
]


@pytest.mark.drawn(10)
@pytest.mark.parametrize("augmented", [False, True], ids=["", "cropped and mirrored"])
@pytest.mark.parametrize(("name", "inputs"), NETWORKS)
def test_every_network_steps_as_with_torch_s_optimiser(name: str, inputs: Layout, augmented: bool) -> None:
    if augmented and inputs is not COLOURED:
        pytest.skip("only images are cropped")
    if isinstance(inputs, Texts):
        weights_of("minilm")
    lora = Lora() if isinstance(inputs, Texts) else None
    spec = ModelSpec(name, inputs, classes=3, bias=True, lora=lora)
    generator = torch.Generator().manual_seed(0)
    start = spec.initialise(generator)
    ours, theirs = spec.load(start), spec.load(start)
    descent = Descent(ours, TrainSettings(learning_rate=0.01, momentum=0.9))
    learnt = [weight for weight in theirs.parameters() if weight.requires_grad]
    optimiser = torch.optim.SGD(learnt, lr=0.01, momentum=0.9)
    for step in range(3):
        batch, labels = inputs.drawn(4, generator), torch.randint(3, (4,), generator=generator)
        batch = augment(batch, generator) if augmented else batch
        losses = []
        for network in (ours, theirs):
            begin_training(network, torch.Generator().manual_seed(step))
            losses.append(functional.cross_entropy(network(batch), labels))
        descent.step(losses[0])
        optimiser.zero_grad()
        losses[1].backward()
        optimiser.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_the_networks_are_those_of_the_project() -> None:
    own = {name for name in models if models.get(name).__module__.startswith("fedfisher_core.")}
    assert {name for name, _ in NETWORKS} == own


def test_frozen_weights_stay_and_unused_ones_only_decay() -> None:
    model = nn.ModuleDict({"used": nn.Linear(2, 1), "unused": nn.Linear(2, 1), "frozen": nn.Linear(2, 1)})
    model["frozen"].requires_grad_(False)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    descent = Descent(model, TrainSettings(learning_rate=0.5, momentum=0.0, weight_decay=0.1))
    inputs = torch.ones(1, 2)
    descent.step((model["used"](inputs) + model["frozen"](inputs)).sum())
    after = dict(model.named_parameters())
    assert torch.allclose(after["used.weight"], before["used.weight"] - 0.5 * (1 + 0.1 * before["used.weight"]))
    assert torch.allclose(after["unused.weight"], 0.95 * before["unused.weight"])
    assert torch.equal(after["frozen.weight"], before["frozen.weight"])
