"""The results of a privacy attack as tidy rows."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict

from fedfisher_core.privacy.attack.factors import Factors

PRIOR_ALONE = "floor: auxiliary images"
"""The case of images that the attacker draws without any upload."""


@dataclass(frozen=True)
class AttackRow:
    """How well one target label was reconstructed through one method, with one seed.

    Args:
        benchmark: name of the experiment.
        experiment: distinguishes these rows from those of other experiments.
        model: name of the clients' network; empty where none is attacked.
        alpha: skew of the other clients' split.
        epsilon: budget of differential privacy of every client; None without.
        method: label of the method, or what a floor or ceiling is made of.
        case: what the attacker is given.
        attack_accuracy: share of the best restart's images in which the evaluator sees the target label.
        mean_attack_accuracy: the same over all restarts.
        feature_distance: from the best of these images to the nearest of the client's own of the target label, in the
            evaluator's features.
        accuracy: test accuracy of the method's global model, a fraction; None for a floor or ceiling.
        upload_bits: of all clients; None for a floor or ceiling.
        download_bits: of all clients; None for a floor or ceiling, and where it was not counted.
        attack_seconds: of the inversion; None for a floor or ceiling.
        gan_seconds: of the attacker's generative prior, which all methods share.
        evaluator_accuracy: test accuracy of the evaluator, a fraction.
        reference: whether this is a floor or a ceiling.
        artifact: key of the artifact that holds the numbers.
        factors: Kronecker factors of the client that are compared; None where all are compared unscaled, and where the
            attacker has none.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    benchmark: str
    experiment: Literal["privacy_attack"]
    dataset: str
    model: str
    num_clients: int
    alpha: float
    target_label: int
    seed: int
    epsilon: float | None
    method: str
    method_settings: dict[str, Any]
    case: str
    attack_accuracy: float
    mean_attack_accuracy: float
    feature_distance: float
    accuracy: float | None
    upload_bits: int | None
    attack_seconds: float | None
    gan_seconds: float
    evaluator_accuracy: float
    reference: bool
    artifact: str
    download_bits: int | None = None
    factors: Factors | None = None

    @property
    def attack(self) -> str:
        """The method, and which factors are compared if not all."""
        return self.method if self.factors is None else self.factors.after(self.method)
