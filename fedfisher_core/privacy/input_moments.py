"""Mean and covariance of inputs that a client may release: clipped sums over its examples with normal noise."""

import torch
from torch import Tensor

from fedfisher_core.privacy.contributions import clip_factors
from fedfisher_core.privacy.release import add_noise, add_symmetric_noise, input_moments_clips, moment_deviation
from fedfisher_core.settings import PrivacySettings

_BATCH_SIZE = 1000
_SUMS = 2


def private_input_moments(
    inputs: Tensor, settings: PrivacySettings, *, noise_multiplier: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Compute mean and covariance of inputs with noise, which together are one Gaussian mechanism.

    Every example x is shortened to the norm R = sqrt(`input_moments_clip` inputs). An example then changes the vector
    (sum of x / R, sum of x x^T / R^2) by at most sqrt(2) in L2 norm, and by that much where its norm is R or more. The
    noise has deviation noise_multiplier R sqrt(2) on sum of x, noise_multiplier R^2 sqrt(2) on the diagonal of sum of
    x x^T, and 1 / sqrt(2) of that elsewhere. With n_i, which is public,

        mean = (sum of x + noise) / n_i,  covariance = (sum of x x^T + noise) / n_i - mean mean^T.

    Divided by their clips, both sums count equally, as K-FAC's factors do. For the vector (x, t x x^T / R) the
    covariance would have the error sqrt(1 + t^2) |mean| / R + sqrt(2) sqrt(1 + 1 / t^2), in spectral norm, to leading
    order and in units of noise_multiplier R^2 sqrt(inputs) / n_i. With a mean as long as the clip, t = 2^(1/6) is
    best, and t = 1, which is taken, is as good to 1 %.

    Args:
        inputs: shape (examples, ...), on any device; an example that is not finite adds nothing.
        noise_multiplier: see `Noise.release`.
        generator: draws the noise, on the CPU; two calls on one data set need two different ones.

    Returns:
        The mean, shape (inputs,), and the covariance, shape (inputs, inputs), symmetric to the last bit but perhaps
        with negative eigenvalues; in double precision, on the device of the inputs.
    """
    examples = inputs.flatten(1)
    radius, square = input_moments_clips(settings, inputs=examples.shape[1])
    total, products = clipped_input_sums(examples, radius)
    first, second = (moment_deviation(clip, sums=_SUMS, multiplier=noise_multiplier) for clip in (radius, square))
    mean = add_noise(total, first, generator) / len(examples)
    moments = add_symmetric_noise(products, second, generator) / len(examples)
    return mean, moments - torch.outer(mean, mean)


def clipped_input_sums(examples: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """Add up x and x x^T over examples x that are shortened to the norm `radius`.

    Args:
        examples: shape (examples, inputs); an example that is not finite adds nothing.

    Returns:
        The sum of x, shape (inputs,), and that of x x^T, shape (inputs, inputs) and symmetric, in double precision.
    """
    size = examples.shape[1]
    total = examples.new_zeros(size, dtype=torch.float64)
    products = examples.new_zeros(size, size, dtype=torch.float64)
    for batch in examples.split(_BATCH_SIZE):
        exact = batch.double()
        factors = clip_factors(exact.square().sum(1), radius)[:, None]
        shortened = torch.where(factors > 0, exact * factors, 0)
        total += shortened.sum(0)
        products += shortened.T @ shortened
    return total, (products + products.T) / 2
