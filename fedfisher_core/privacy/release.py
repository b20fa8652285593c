"""What everybody knows of how statistics were released: the clips of their parts, and the deviations of their noise."""

from dataclasses import dataclass

from fedfisher_core.settings import PrivacySettings


@dataclass(frozen=True)
class Release:
    """How clients released their statistics; all of it is public.

    Args:
        settings: the clips.
        multiplier: deviation of the noise of each mechanism, as a multiple of its clip.
        num_examples: n_i of the clients, the attacked one first.
    """

    settings: PrivacySettings
    multiplier: float
    num_examples: tuple[int, ...]


def moment_clips(settings: PrivacySettings, *, windows: int, columns: int) -> tuple[float, float]:
    """Find the clips of what an example adds to the sums that a layer's Kronecker factors are made of.

    Args:
        settings: the clips of all layers.
        windows: places of one example that the layer looks at; 1 for a linear layer.
        columns: of the layer's matrix, its inputs with that of a bias.

    Returns:
        Largest Frobenius norms of an example's sum of x x^T, and of its sum of g g^T.
    """
    return settings.input_clip * windows * columns, settings.output_clip


def input_moments_clips(settings: PrivacySettings, *, inputs: int) -> tuple[float, float]:
    """Find the clips of what an example adds to the sums that input moments are made of.

    Args:
        settings: the clips.
        inputs: numbers of one example.

    Returns:
        R = sqrt(`input_moments_clip` inputs), the largest norm of an example x, and R^2, the largest of x x^T.
    """
    square = settings.input_moments_clip * inputs
    return square**0.5, square


def moment_deviation(clip: float, *, sums: int, multiplier: float) -> float:
    """Find the deviation of the noise on one of several sums that are released together.

    Divided by their clips, all of them together change by at most sqrt(sums) with an example.

    Args:
        clip: of the sum.
        sums: how many there are: two a layer for Kronecker factors, and two for input moments.
        multiplier: of the mechanism that releases all of them.

    Returns:
        The deviation on a vector, or on the diagonal of a symmetric matrix; elsewhere it is 1 / sqrt(2) of that.
    """
    return multiplier * clip * sums**0.5
