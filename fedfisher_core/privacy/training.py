"""Local training by DP-SGD (Abadi et al. 2016, "Deep learning with differential privacy"), computed by Opacus."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from fedfisher_core.client.objectives.objective import Losses, cross_entropies
from fedfisher_core.client.training import Trained, require_finite
from fedfisher_core.data.tensors import Examples, augment
from fedfisher_core.engine.errors import UnsupportedLayerError
from fedfisher_core.fisher.layers import Layer, matrix_layers
from fedfisher_core.models.layers import begin_training
from fedfisher_core.models.spec import parameters_of
from fedfisher_core.privacy.accountant import sampling_rate
from fedfisher_core.settings import TrainSettings


def train_privately(
    network: nn.Module,
    examples: Examples,
    settings: TrainSettings,
    *,
    noise_multiplier: float,
    gradient_clip: float,
    generator: torch.Generator,
    losses: Losses = cross_entropies,
    num_examples: int | None = None,
    augmented: bool = False,
) -> Trained:
    """Minimise the mean loss of a client's examples by DP-SGD.

    Each step takes every example with probability min(batch_size / n, 1), clips its gradient to L2 norm
    `gradient_clip`, adds normal noise of deviation noise_multiplier gradient_clip to each element of their sum, and
    divides by the expected number of examples. There are as many steps as without privacy. The clipped sums are
    Opacus' "ghost clipping": of a linear layer, no example's gradient is ever formed.

    The guarantee covers the weights. The losses are a record of the simulation, and an exception that says that
    training diverged depends on the data too; neither may leave a real client. There, the generator must also be
    cryptographically secure (Opacus' secure_mode). Here it is seeded, so that the simulation can be repeated.

    Args:
        network: holds the initial weights; trained in place, on the device of the examples.
        generator: draws the batches, the augmentation, the dropout and the noise, on the CPU.
        losses: loss of each example of a batch, by its own outputs and label alone.
        num_examples: n, the public number; more than there are where some add nothing. None: as many as there are.
        augmented: whether each batch is cropped and mirrored at random.

    Returns:
        The trained weights, and the mean loss over the examples drawn in each epoch (0 where none was).

    Raises:
        UnsupportedLayerError: a layer has no gradient for each example.
        DivergedClientError: the loss or a weight is not finite.
    """
    layers = private_layers(network)
    public = len(examples) if num_examples is None else num_examples
    rate = sampling_rate(public, settings.batch_size)
    # Opacus takes seconds to import.
    from fedfisher_core.privacy.descent import PrivateDescent

    begin_training(network, generator)
    means: list[float] = []
    with (
        _contiguous_inputs(layers),
        PrivateDescent(
            network,
            settings,
            noise_multiplier=noise_multiplier,
            gradient_clip=gradient_clip,
            expected_batch_size=min(settings.batch_size, public),
            generator=generator,
            losses=losses,
        ) as descent,
    ):
        for steps in _epochs(settings, public):
            total = 0.0
            seen = 0
            for _ in range(steps):
                batch = _draw(len(examples), rate, generator).to(examples.inputs.device)
                inputs = examples.inputs[batch]
                if augmented:
                    inputs = augment(inputs, generator)
                total += descent.step(inputs, examples.labels[batch])
                seen += len(batch)
            means.append(total / max(seen, 1))
            require_finite(means)
    return Trained.of(parameters_of(network), means)


def _epochs(settings: TrainSettings, examples: int) -> Iterator[int]:
    """Steps of every epoch; where steps are counted, the last epoch ends early."""
    per_epoch = -(-examples // settings.batch_size)
    if settings.steps is None:
        assert settings.epochs is not None
        yield from [per_epoch] * settings.epochs
        return
    for done in range(0, settings.steps, per_epoch):
        yield min(per_epoch, settings.steps - done)


def _draw(examples: int, rate: float, generator: torch.Generator) -> Tensor:
    """Draw a Poisson-sampled batch as indices of examples."""
    # In double precision, the probability that a number falls below the rate is right to 2^-53.
    uniform = torch.rand(examples, dtype=torch.float64, generator=generator)
    return (uniform < rate).nonzero()[:, 0]


def private_layers(network: nn.Module) -> dict[str, Layer]:
    """Find the layers, by name, of a network that has a gradient for each example.

    Raises:
        UnsupportedLayerError: a layer has none.
    """
    layers = matrix_layers(network)
    for name, layer in layers.items():
        if isinstance(layer, nn.Conv2d) and layer.padding_mode != "zeros":
            raise UnsupportedLayerError(
                f"layer {name!r} is a Conv2d with padding_mode={layer.padding_mode!r}; allowed with privacy: 'zeros'"
            )
    return layers


@contextmanager
def _contiguous_inputs(layers: Mapping[str, Layer]) -> Iterator[None]:
    """Lay out the inputs of convolutions in the order of their dimensions.

    Opacus assumes this order when it cuts inputs into patches. Other layouts, such as that of augmented images, would
    give it wrong norms, and the clip would not hold.
    """
    with ExitStack() as hooks:
        for layer in layers.values():
            if isinstance(layer, nn.Conv2d):
                hooks.enter_context(layer.register_forward_pre_hook(_contiguous))
        yield


def _contiguous(layer: nn.Module, arguments: tuple[Tensor]) -> tuple[Tensor]:
    return (arguments[0].contiguous(),)
