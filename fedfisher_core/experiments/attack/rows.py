"""The results of a privacy attack as tidy rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter

from fedfisher_core.reporting.rows import read_checked


@dataclass(frozen=True)
class AttackRow:
    """How well one target label was reconstructed through one method, with one seed.

    Args:
        benchmark: name of the experiment.
        experiment: "privacy_attack", which tells these rows from those of ordinary benchmarks.
        dataset: name of the data set.
        model: name of the clients' network; empty where none is attacked.
        num_clients: number of clients.
        alpha: skew of the other clients' split.
        target_label: the attacked label.
        seed: seed of the row.
        epsilon: budget of differential privacy of every client; None without.
        method: label of the method, or what a floor or ceiling is made of.
        method_settings: its settings.
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
        artifact: key of the artifact that the numbers were read from.
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


_ROWS = TypeAdapter(list[AttackRow])


def read_rows(path: Path) -> list[AttackRow]:
    """Read the rows of a results.json.

    Args:
        path: the file.

    Returns:
        The rows, in the file's order.

    Raises:
        InputError: the file is missing, or is no list of rows with exactly the fields of `AttackRow`.
    """
    return read_checked(path, _ROWS, "rows of a privacy attack")


@dataclass(frozen=True)
class Summary:
    """One method under one privacy budget, over target labels and seeds.

    Args:
        dataset: name of the data set.
        model: name of the clients' network; empty for a floor or ceiling.
        epsilon: budget; None without differential privacy.
        method: label.
        case: what the attacker is given.
        reference: whether this is a floor or a ceiling.
        rows: what is summarised, one a target label and seed.
    """

    dataset: str
    model: str
    epsilon: float | None
    method: str
    case: str
    reference: bool
    rows: tuple[AttackRow, ...]

    def values(self, name: str) -> list[float]:
        """Numbers of one field; those that are None are left out."""
        return [value for row in self.rows if (value := getattr(row, name)) is not None]


def summarise(rows: Sequence[AttackRow]) -> list[Summary]:
    """Gather rows by data set, network, privacy budget and method.

    Args:
        rows: the results, in any order.

    Returns:
        A summary each, in the order of the rows; floors and ceilings come last.
    """
    groups: dict[tuple[str, str, float | None, str, str, bool], list[AttackRow]] = {}
    for row in sorted(rows, key=lambda row: row.reference):
        key = (row.dataset, row.model, row.epsilon, row.method, row.case, row.reference)
        groups.setdefault(key, []).append(row)
    return [
        Summary(
            dataset=dataset,
            model=model,
            epsilon=epsilon,
            method=method,
            case=case,
            reference=reference,
            rows=tuple(group),
        )
        for (dataset, model, epsilon, method, case, reference), group in groups.items()
    ]
