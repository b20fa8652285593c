"""What a server holds while it aggregates, and what it returns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import torch
from torch import Tensor, nn

from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.data.tensors import Examples
from fedfisher_core.errors import InputError
from fedfisher_core.evaluation.predictions import accuracy
from fedfisher_core.models.spec import ModelSpec, Parameters
from fedfisher_core.settings import FisherSettings


class Combine(StrEnum):
    """How several networks make one prediction or one measure."""

    MEAN_PROBABILITY = "mean_probability"
    """Predict the (weighted) mean of their probabilities."""

    MEAN_LOGIT = "mean_logit"
    """Predict by the (weighted) mean of their outputs before the softmax."""

    MEAN_MEASURE = "mean_measure"
    """Measure each by itself, and average the measures."""


@dataclass(frozen=True)
class Aggregate:
    """What a method makes of the uploads.

    Args:
        networks: parameters of the global network; several for references that keep all of them.
        combine: how several networks are joined.
        details: numbers worth reading beside the result, such as the step that was selected.
        weights: of the networks in the mean of their probabilities or outputs, class by class, shape
            (networks, classes); None for equal ones.
        spec: of the networks; None where it is the clients'.
    """

    networks: tuple[Parameters, ...]
    combine: Combine = Combine.MEAN_PROBABILITY
    details: dict[str, float] = field(default_factory=dict)
    weights: Tensor | None = None
    spec: ModelSpec | None = None

    @staticmethod
    def of(parameters: Parameters, **details: float) -> "Aggregate":
        """Wrap the parameters of one global network."""
        return Aggregate(networks=(parameters,), details=details)


class Server:
    """The server's own means; it notes whether the validation set was used.

    Args:
        spec: the network that clients trained.
        dataset: what is known of the data that they trained on: their normalisation and augmentation.
        fisher: how they compute their Fishers.
        initial: the weights that all clients started from; where each had its own, drawn in the same way.
        generator: draws whatever the method leaves to chance, on the CPU.
        device: where the method computes.
        validation: the server's own examples, on that device.
    """

    def __init__(
        self,
        *,
        spec: ModelSpec,
        dataset: DatasetSpec,
        fisher: FisherSettings,
        initial: Parameters,
        generator: torch.Generator,
        device: torch.device,
        validation: Examples,
    ) -> None:
        self.spec = spec
        self.dataset = dataset
        self.fisher = fisher
        self.initial = initial
        self.generator = generator
        self.device = device
        self._validation = validation
        self._used = False

    @property
    def used_validation(self) -> bool:
        """Whether the validation set was looked at."""
        return self._used

    @property
    def can_validate(self) -> bool:
        """Whether there is a validation set."""
        return len(self._validation) > 0

    @property
    def validation(self) -> Examples:
        """The server's own examples.

        Raises:
            InputError: there are none.
        """
        if not self.can_validate:
            raise InputError(
                "the method looks at the server's validation images, of which it has none; allowed: "
                "data.validation_size=1 or more, and data.public_validation=true with privacy"
            )
        self._used = True
        return self._validation

    def network(self, parameters: Mapping[str, Tensor]) -> nn.Module:
        """Build a network with given parameters, in evaluation mode."""
        return self.spec.load(parameters).eval()

    def scorer(self) -> Callable[[Mapping[str, Tensor]], float]:
        """Prepare to score parameters on the validation set.

        Returns:
            A function from parameters to accuracy, a fraction.

        Raises:
            InputError: there is no validation set.
        """
        examples = self.validation
        return lambda parameters: accuracy(self.network(parameters), examples)
