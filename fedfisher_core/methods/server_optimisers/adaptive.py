"""What FedAdagrad, FedAdam and FedYogi have in common (Reddi et al. 2021, Algorithm 2)."""

from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from fedfisher_core.methods.server_optimisers.optimiser import Step

LearningRate = Annotated[float, Field(gt=0, description="eta, of the server")]
FirstDecay = Annotated[float, Field(ge=0, lt=1, description="beta_1, of the mean of changes")]
SecondDecay = Annotated[float, Field(ge=0, lt=1, description="beta_2, of the mean of squared changes")]
Adaptivity = Annotated[float, Field(gt=0, description="tau, added to the root of squared changes")]


def first_moments(settings: Any) -> dict[str, float]:
    """Start the moments: m at 0, and v at tau^2, the least that the algorithm allows.

    In Flower's code v starts at 0.
    """
    return {"mean": 0.0, "square": settings.adaptivity**2}


def adaptive_step(
    change: Tensor, mean: Tensor, square: Tensor, *, learning_rate: float, beta_1: float, adaptivity: float
) -> Step:
    """Step by eta m / (sqrt(v) + tau), with m = beta_1 m + (1 - beta_1) Delta; gives the step, and both moments.

    As in the algorithm, the bias of the first rounds is not corrected. Flower's code corrects FedAdam alone: its eta
    is multiplied by sqrt(1 - beta_2^(t + 1)) / (1 - beta_1^(t + 1)) in round t.

    Args:
        change: Delta, aggregate less start.
        mean: m before the round.
        square: v after the round.
        learning_rate: eta.
        adaptivity: tau.
    """
    mean = beta_1 * mean + (1 - beta_1) * change
    return learning_rate * mean / (square.sqrt() + adaptivity), {"mean": mean, "square": square}
