"""What a server holds while it aggregates, and what it returns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import torch
from torch import Tensor, nn

from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.arithmetic import is_finite
from fedfisher_core.engine.errors import InputError, shown
from fedfisher_core.models.combined import ByFeatures, Combined
from fedfisher_core.models.evaluation import accuracy
from fedfisher_core.models.spec import ModelSpec, Parameters
from fedfisher_core.settings import FisherSettings


class Combine(StrEnum):
    """How several networks make one prediction or one measure."""

    MEAN_PROBABILITY = "mean_probability"
    """Predict the (weighted) mean of their probabilities."""

    MEAN_LOGIT = "mean_logit"
    """Predict by the (weighted) mean of their outputs before the softmax."""

    LEARNT = "learnt"
    """Predict by what a combiner makes of their outputs before the softmax."""

    MEAN_FEATURE = "mean_feature"
    """Predict by the mean feature and the mean weights of the last layer."""

    MEAN_MEASURE = "mean_measure"
    """Measure each network, and average the measures."""


@dataclass(frozen=True)
class Aggregate:
    """What a method makes of the uploads.

    Args:
        networks: parameters of the global network; several for ensembles and references that keep all of them.
        details: numbers that the store keeps with the result, such as the step that was selected.
        weights: of the networks in the mean of their probabilities or outputs, class by class, shape
            (networks, classes); None for equal ones.
        spec: of the networks; None where it is the clients'.
        combiner: parameters of what makes one network of several; None where `combine` has no combiner.
        exchanged_bits: what every client was sent in addition to start and result, and sent back as much, while the
            method asked it again.
    """

    networks: tuple[Parameters, ...]
    combine: Combine = Combine.MEAN_PROBABILITY
    details: dict[str, float] = field(default_factory=dict)
    weights: Tensor | None = None
    spec: ModelSpec | None = None
    combiner: Parameters | None = None
    exchanged_bits: int = 0

    @staticmethod
    def of(parameters: Parameters, **details: float) -> "Aggregate":
        """Wrap the parameters of one global network."""
        return Aggregate(networks=(parameters,), details=details)

    def modules(self, spec: ModelSpec) -> list[nn.Module]:
        """Build what predicts, in evaluation mode: the networks, or the one that a combiner makes of them."""
        networks = [(self.spec or spec).load(parameters).eval() for parameters in self.networks]
        kind = ByFeatures if self.combine is Combine.MEAN_FEATURE else Combined
        return networks if self.combiner is None else [kind(networks, self.combiner)]


class Server:
    """What the server holds; it notes whether the validation set was used.

    Args:
        spec: the network that clients trained.
        dataset: the normalisation and augmentation of the clients' data.
        fisher: how clients compute their Fishers.
        initial: the weights that all clients started from; where each had its own, drawn in the same way; None where
            the server knows none.
        generator: draws what the method leaves to chance, on the CPU.
        validation: the server's own examples, on `device`.
    """

    def __init__(
        self,
        *,
        spec: ModelSpec,
        dataset: DatasetSpec,
        fisher: FisherSettings,
        initial: Parameters | None,
        generator: torch.Generator,
        device: torch.device,
        validation: Examples,
    ) -> None:
        self.spec = spec
        self.dataset = dataset
        self.fisher = fisher
        self._initial = initial
        self.generator = generator
        self.device = device
        self._validation = validation
        self._used = False

    @property
    def knows_start(self) -> bool:
        """Whether it knows the weights that all clients started from."""
        return self._initial is not None

    @property
    def initial(self) -> Parameters:
        """The weights that all clients started from.

        Raises:
            InputError: the server knows none.
        """
        if self._initial is None:
            raise InputError(
                "the weights that all clients started from are looked at, and the server does not know them; allowed: "
                "with an initial network, as in merge(..., initial=module) or --initial"
            )
        return self._initial

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
        """Return a function from parameters to accuracy on the validation set, a fraction.

        Raises:
            InputError: there is no validation set.
        """
        examples = self.validation
        return lambda parameters: accuracy(self.network(parameters), examples)


def require_networks(name: str, made: object, spec: ModelSpec) -> None:
    """Check what a method returns, which anyone may have written.

    Args:
        name: the method's.
        made: what it returned.
        spec: the network that clients trained.

    Raises:
        TypeError: it is no `Aggregate`.
        ValueError: a network has other parameters than it should have.
        ArithmeticError: a parameter is not finite.
    """
    if not isinstance(made, Aggregate):
        raise TypeError(f"method {name!r} returned {type(made).__name__}; allowed: Aggregate")
    shapes = (made.spec or spec).shapes()
    for network in made.networks:
        if network.keys() != shapes.keys():
            raise ValueError(f"method {name!r} returned parameters {shown(sorted(network))}; allowed: {sorted(shapes)}")
        for key, tensor in network.items():
            if tuple(tensor.shape) != tuple(shapes[key]):
                raise ValueError(
                    f"method {name!r} returned a parameter {key!r} of shape {tuple(tensor.shape)}; allowed: "
                    f"{tuple(shapes[key])}"
                )
            if not is_finite(tensor):
                raise ArithmeticError(f"method {name!r} returned a parameter {key!r} that is not finite")
