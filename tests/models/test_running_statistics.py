import torch
from torch import Tensor, nn

from fedfisher_core.models.batch_norm import BatchNorm, batch_norms, estimate
from fedfisher_core.models.spec import parameters_of


def network() -> nn.Sequential:
    layers = nn.Sequential(nn.Linear(4, 3), BatchNorm(3), nn.ReLU(), nn.Linear(3, 2), BatchNorm(2)).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layers.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return layers


def inputs(count: int) -> Tensor:
    return 3 * torch.randn(count, 4, generator=torch.Generator().manual_seed(1)) + 1


def test_each_layer_normalises_what_the_estimated_layers_before_it_make() -> None:
    layers, images = network(), inputs(50)
    estimate(layers, images)
    with torch.no_grad():
        for index, norm in enumerate(layers):
            if isinstance(norm, BatchNorm):
                seen = layers[:index](images)
                # A batch is normalised by its own variance, of which the running one is the unbiased estimate.
                assert torch.allclose(norm.mean, seen.mean(0), atol=0.01)
                assert torch.allclose(norm.variance, seen.var(0), rtol=0.05)


def test_no_other_weight_moves_and_evaluation_goes_on() -> None:
    layers = network()
    before = {name: tensor.clone() for name, tensor in parameters_of(layers).items()}
    after = estimate(layers, inputs(50))
    moved = {name for name, tensor in before.items() if not torch.equal(tensor, after[name])}
    assert moved == {f"{norm}.{kind}" for norm in batch_norms(layers) for kind in ("mean", "log_variance")}
    assert not any(norm.training for norm in batch_norms(layers).values())
    assert {norm.momentum for norm in batch_norms(layers).values()} == {0.1}


def test_many_inputs_are_averaged_over_batches_as_torch_does() -> None:
    layers, images = network(), inputs(1500)
    theirs = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2), nn.BatchNorm1d(2))
    with torch.no_grad():
        for mine, own in zip(layers, theirs, strict=True):
            for name in ("weight", "bias"):
                if hasattr(own, name):
                    getattr(own, name).copy_(getattr(mine, name))
    torch.optim.swa_utils.update_bn(images.split(750), theirs)
    estimate(layers, images)
    assert torch.allclose(layers(images), theirs.eval()(images), atol=1e-5)


def test_what_is_estimated_is_forgotten_first() -> None:
    layers, other = network(), network()
    estimate(other, inputs(20) * 100)
    assert all(
        torch.equal(one, two)
        for one, two in zip(estimate(layers, inputs(50)).values(), estimate(other, inputs(50)).values(), strict=True)
    )
