"""Distillation on what K-FAC says of the inputs: `gaussian_distillation` without a further statistic."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedfisher_core.client.statistics.input_moments import InputMoments
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.errors import UnsupportedLayerError
from fedfisher_core.fisher.layers import factored_layers
from fedfisher_core.methods.distillation.distilling import LearningRate, Samples, Steps, distilled
from fedfisher_core.methods.distillation.pseudo_inputs import gaussian
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.fedfisher import (
    ConjugateGradients,
    FactoredDamping,
    KroneckerSolver,
    kronecker_objective,
    solver_validates,
)
from fedfisher_core.methods.shared.second_moments import factor_scale
from fedfisher_core.models.spec import ModelSpec

DEFAULT_SOLVER = ConjugateGradients()


def of_second_moment(moment: Tensor, size: int) -> InputMoments:
    """Compute the mean and the covariance of inputs from the second moment of a linear layer's inputs.

    Args:
        moment: E x x^T over the layer's inputs. With a bias, a one ends each x, so that the last column is their mean;
            without, the mean counts as 0. With privacy each x is shortened, ones too, so that the last number says by
            how much in the mean; without a bias, inputs are drawn as they are shortened.
        size: numbers of an input.

    Returns:
        The mean, and as directions all eigenvectors of the covariance, each as long as the standard deviation along it.
        What compression made negative counts as 0.
    """
    # A GPU's library chooses other signs of eigenvectors, and other signs draw other inputs.
    device, moment = moment.device, moment.double().cpu()
    if len(moment) > size:
        # Compression may make the last number larger than 1, which says nothing of lengths.
        moment = moment / moment[size, size].clamp(min=torch.finfo(torch.float32).eps, max=1)
    mean = moment[:size, size] if len(moment) > size else moment.new_zeros(size)
    values, vectors = torch.linalg.eigh(moment[:size, :size] - torch.outer(mean, mean))
    directions = (vectors * values.clamp(min=0).sqrt()).T
    found = {"mean": mean, "directions": directions, "deviations": torch.zeros_like(mean)}
    return InputMoments({name: tensor.float().to(device) for name, tensor in found.items()})


def _first_layer(spec: ModelSpec) -> str:
    """Name the layer whose factor A is the second moment of whole inputs."""
    name, layer = next(iter(factored_layers(spec.skeleton()).items()))
    if not isinstance(layer, nn.Linear) or layer.in_features != spec.inputs.size:
        raise UnsupportedLayerError(
            f"the first layer, {name!r}, has type {type(layer).__name__}, which does not see inputs as a whole; "
            f"allowed: a Linear of {spec.inputs.size} inputs, and 'gaussian_distillation' for others"
        )
    return name


def _supports(spec: ModelSpec) -> None:
    _first_layer(spec)


@method(
    "kfac_distillation",
    uploads=(Weights, KFAC),
    reference="https://arxiv.org/abs/2403.12329",
    supports=_supports,
    validates=solver_validates,
    merges=False,
)
def kfac_distillation(
    server: Server,
    uploads: Sequence[Upload],
    *,
    solver: KroneckerSolver = DEFAULT_SOLVER,
    factored_damping: FactoredDamping = 0.0,
    steps: Steps = 300,
    samples: Samples = 64,
    learning_rate: LearningRate = 1e-3,
) -> Aggregate:
    """Minimise sum_i p_i E KL(f_i(x_i) || f(x_i)) from FedFisher(K-FAC), where x_i is like client i's inputs.

    The factor A_i of a first linear layer is sqrt(C') times the second moment of what it sees, with the C' nominal
    directions of K-FAC: x_i is normal with this moment. It has no mean where the layer has no bias. The defaults are
    those of `gaussian_distillation`, and were not tuned for this method.

    Returns:
        The network after the last step, with the divergence on its inputs.

    Raises:
        UnsupportedLayerError: the network does not begin with a linear layer.
    """
    begun = solver.minimise(kronecker_objective(uploads, factored_damping=factored_damping), server).parameters
    inputs, first = server.spec.inputs, _first_layer(server.spec)
    moments = [upload[KFAC].factors[first].inputs / factor_scale(server) for upload in uploads]
    draws = [gaussian(of_second_moment(moment, inputs.size), inputs.shape) for moment in moments]
    return distilled(server, uploads, begun, draws, steps=steps, samples=samples, learning_rate=learning_rate)
