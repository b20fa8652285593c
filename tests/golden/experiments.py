"""Tiny experiments that have every kind of job between them."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import save

from fedfisher_core.client.objectives.objective import objectives
from tests import arranged, tiny
from tests.golden import engine
from tests.golden.numbers import Golden, file_of, shapes
from tests.golden.registered import FEW_STEPS
from tests.models.trunks import tiny_trunk

BENCHMARK: Mapping[str, Any] = {
    "name": "golden",
    "seeds": [0],
    "data": {"dataset": "tiny", "validation_size": 20},
    "partition": {"alpha": [0.5], "clients": [3], "min_size": 5},
    "model": {"name": "tiny"},
    "train": {"epochs": 3, "learning_rate": 0.05, "batch_size": 16},
    # A number that is shortened to a few bits can move by one of them where it was rounded otherwise.
    "wire": {"budget": "none", "format": "float32"},
    "methods": {"fedavg": {}},
}
ATTACK: Mapping[str, Any] = {
    "experiment": "privacy_attack",
    "name": "golden",
    "seeds": [0],
    "data": {"dataset": "mnist5k"},
    "model": {"name": "compact"},
    "train": {"steps": 20},
    "threat": {"target_labels": [1], "clients": 3, "extra_images": 10, "auxiliary_images": 100, "alpha": 5},
    "wire": {"budget": "none", "format": "float32"},
    "methods": {"fedavg": {}, "fedfisher_kfac": {}},
    "gan": {"latent": 4, "width": 2, "generator_steps": 3, "batch_size": 8},
    "inversion": {"restarts": 2, "images": 3, "iterations": 4},
    # More steps of Adam would make much of how the first were rounded.
    "evaluator": {"epochs": 1, "filters": 2, "batch_size": 2000},
}
TWO_LAYER: Mapping[str, Any] = {
    "experiment": "two_layer",
    "name": "golden",
    "two_layer": {
        "clients": 2,
        "samples": 4,
        "dimensions": 3,
        "widths": [4, 8],
        "steps_of_widths": 6,
        "steps": [1, 6],
        "width_of_steps": 8,
        "seeds": [0],
    },
}
TOY: Mapping[str, Any] = {
    "experiment": "fedfish_toy",
    "name": "golden",
    "toy": {
        "overlaps": [0.5, 0.0],
        "epochs": [1, 2],
        "samples": 6,
        "widths": [3, 3, 3],
        "batch_size": 3,
        "points": 5,
        "seeds": [0],
    },
}


GIVEN = "given.safetensors"
WEIGHTS = save(
    {
        name: ((37 * torch.arange(shape.numel()) % 101 - 50) / 128).reshape(shape)
        for name, shape in tiny.TINY.shapes().items()
    }
)
"""What a file of pre-trained weights holds: the same bits on every processor."""
SHAPES_ALONE = ("ReleaseStatistic",)
"""Jobs whose noise is drawn by the digest of a trained network, whose last bit is the processor's."""
PRETRAINED = {"file": GIVEN, "sha256": hashlib.sha256(WEIGHTS).hexdigest()}
# Where the solver stops by itself is a matter of rounding.
TWO_METHODS: Mapping[str, Any] = {"fedavg": {}, "fedfisher_kfac": FEW_STEPS}


@dataclass(frozen=True)
class Case:
    """A tiny experiment.

    Args:
        content: its settings, as a file has them.
        kinds: the classes of jobs whose numbers it freezes.
    """

    content: Mapping[str, Any]
    kinds: tuple[str, ...]


CASES: Mapping[str, Case] = {
    "federation": Case(
        {**BENCHMARK, "methods": TWO_METHODS, "measures": {"barrier": True, "personalisation": {"unseen_clients": 1}}},
        (
            "DecodeData",
            "SplitData",
            "DrawStart",
            "TrainClient",
            "ComputeStatistic",
            "SendUpload",
            "AggregateUploads",
            "MeasureModel",
            "MeasureBarrier",
            "Personalise",
        ),
    ),
    "two rounds": Case(
        {**BENCHMARK, "rounds": {"count": 2, "server_optimiser": "fedadam"}}, ("TrainClient", "AggregateUploads")
    ),
    "clients that train together": Case(
        {**BENCHMARK, "train": {**BENCHMARK["train"], "together": 3}}, ("TrainTogether",)
    ),
    "differential privacy": Case(
        {
            **BENCHMARK,
            # Noise is drawn by the digests of data and start.
            "model": {"name": "tiny", "pretrained": PRETRAINED},
            "methods": TWO_METHODS,
            "privacy": {"epsilon": 4.0, "delta": 1e-3},
            "audit": {"canaries": 10, "guesses": 4},
        },
        ("TrainPrivately", "ReleaseStatistic", "AuditClient"),
    ),
    "secure sums": Case({**BENCHMARK, "wire": {"budget": "none", "server_view": "secure_sum"}}, ("AggregateSecurely",)),
    "further networks": Case({**BENCHMARK, "methods": {"fedbens_mixture": {"steps": 5}}}, ("ComputeByTraining",)),
    "asking again": Case({**BENCHMARK, "methods": {"regmean_plus_plus": {}}}, ("AggregateByAsking",)),
    "features": Case({**BENCHMARK, "model": {"name": "tiny_trunk/linear"}}, ("ExtractFeatures", "TrainClient")),
    "pre-trained weights": Case({**BENCHMARK, "model": {"name": "tiny", "pretrained": PRETRAINED}}, ("ReadStart",)),
    "augmentation": Case({**BENCHMARK, "data": {"dataset": "tiny_augmented", "validation_size": 20}}, ("TrainClient",)),
    "canary": Case(
        {
            **BENCHMARK,
            "data": {"dataset": "texts", "validation_size": 20},
            "model": {"name": "one_hot"},
            "measures": {"canary": {"times": 4, "sentences": 16}},
        },
        ("SplitData", "MeasureExposure"),
    ),
    "attack": Case(ATTACK, ("TrainJudge", "TrainPrior", "AttackClient", "MeasureBounds")),
    "two-layer networks": Case(TWO_LAYER, ("MeasureSeed",)),
    "toy regression": Case(TOY, ("MeasureOverlap",)),
}


@contextmanager
def surroundings(folder: Path) -> Iterator[None]:
    """Have all that the experiments read in one folder, work there, and compute with one thread.

    Args:
        folder: gets the data and weights.
    """
    tiny.write_tiny(folder / "data")
    tiny.write_tiny(folder / "data", "tiny_augmented")
    arranged.write(folder / "data")
    tiny_trunk.register(folder / "weights")
    (folder / GIVEN).write_bytes(WEIGHTS)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with chdir(folder), patch.dict(os.environ, {"FEDFISHER_DATA_DIR": str(folder / "data")}):
        yield
    torch.set_num_threads(threads)


def numbers_of_case(name: str) -> dict[str, Golden]:
    """Compute the numbers of a case's jobs, by the job's label."""
    case = CASES[name]
    made = engine.results(case.content, Path(name))
    return {
        f"{name}: {label}": Golden(
            f"job {one.kind}", one.file, shapes(one.numbers) if one.kind in SHAPES_ALONE else one.numbers
        )
        for label, one in made.items()
        if one.kind in case.kinds
    }


def numbers_of_objective(name: str) -> dict[str, Golden]:
    """Compute the global network after two rounds of FedAvg whose clients minimise an objective."""
    # One objective takes plain steps alone.
    train = {**BENCHMARK["train"], "momentum": 0.0, "objective": name}
    made = engine.results({**BENCHMARK, "rounds": {"count": 2}, "train": train}, Path(f"objective {name}"))
    (last,) = (one for label, one in made.items() if one.kind == "AggregateUploads" and "round=2" in label)
    return {name: Golden(f"objective {name!r}", file_of(objectives.get(name).function), last.numbers)}
