"""The global network of a finished benchmark, as files that torch alone can load."""

import errno
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from fedfisher.adapters import write_adapter
from fedfisher.client import digest_of
from fedfisher.exporting_adapters import AdaptedNetwork, find_artifact, require_one_network
from fedfisher.onnx_file import write_onnx
from fedfisher_core.data.layouts import Images, Layout, Texts, Tokens
from fedfisher_core.data.specs import DatasetSpec, datasets
from fedfisher_core.engine.errors import InputError, in_one_line, shortened, shown
from fedfisher_core.engine.failures import read_failed
from fedfisher_core.engine.installed import require_packages
from fedfisher_core.engine.store import Store, read_document, read_tensors
from fedfisher_core.engine.store.caching import manifest_here
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.federation.data import INFO
from fedfisher_core.federation.global_models import read_result
from fedfisher_core.federation.start import NETWORK
from fedfisher_core.models.spec import ModelSpec, Parameters, parameters_of
from fedfisher_core.models.trunks.trunk import split_name
from fedfisher_core.reporting.rows import FAILED, RESULTS, experiment_of_rows, read_rows
from fedfisher_core.settings.reading import nearest

_SETTINGS = (
    *("dataset", "model", "partition", "alpha", "num_clients", "num_rounds", "seed", "train_size", "held_out"),
    *("shift", "shift_strength", "shift_classes", "objective", "server_optimiser", "cohort", "unseen_clients"),
)
"""Fields in which rows of one method may differ."""

_LOADING = '''"""Load the network with torch alone, and predict the classes of examples."""

import json
from pathlib import Path

import torch

folder = Path(__file__).parent
about = json.loads((folder / "network.json").read_text())
network = torch.export.load(folder / "network.pt2").module()
# In double precision large numbers, such as Unix times, stay distinct.
mean, std = (
    torch.tensor(about["normalisation"][part], dtype=torch.float64).reshape(about["constants_shape"])
    for part in ("mean", "std")
)


def predict(examples: torch.Tensor) -> list[str]:
    """Name the class of each example; images are pixels in [0, 1], and large numbers are float64."""
    return [about["class_names"][label] for label in network(%s).argmax(1).tolist()]
'''


def choose_row(folder: Path, *, method: str, settings: Mapping[str, Any]) -> Row:
    """Choose the only row of a benchmark's report with a method's label and the given values of its fields.

    Raises:
        InputError: there is no such row, such as where the method failed, or there are several.
    """
    path, name = folder / RESULTS, folder.name
    if (experiment := experiment_of_rows(path)) is not None:
        raise InputError(f"{name!r} is of the experiment {experiment!r}; allowed: benchmarks, which make networks")
    for key in settings:
        if key not in _SETTINGS:
            raise InputError(f"--setting {shown(key)} is none of a row; {nearest(key, _SETTINGS)}")
    rows = read_rows(path, Row)
    of_method = [row for row in rows if row.method == method]
    found = [row for row in of_method if all(getattr(row, key) == value for key, value in settings.items())]
    if len(found) == 1:
        return found[0]
    asked = f"method {method!r}" + "".join(f", {key}={value}" for key, value in settings.items())
    if found:
        raise InputError(
            f"{name!r} has {len(found)} rows of {asked}; allowed: --setting with one {_differences(found)}"
        )
    if reason := _failure(folder, method):
        raise InputError(f"{name!r} has no row of {asked}: {reason}; allowed: rows that did not fail")
    if of_method:
        raise InputError(f"{name!r} has no row of {asked}; allowed: one {_differences(of_method)}")
    raise InputError(f"{name!r} has no row of {asked}; {nearest(method, sorted({row.method for row in rows}))}")


@dataclass(frozen=True)
class GlobalNetwork:
    """The global network of a row, in evaluation mode.

    Args:
        network: takes examples as clients train on them.
        spec: of the network.
        dataset: what its examples are.
        trunk: the network whose features it takes; None where it takes the examples themselves.
    """

    network: nn.Module
    spec: ModelSpec
    dataset: DatasetSpec
    trunk: str | None
    class_names: list[str]

    @classmethod
    def of(cls, row: Row, store: Store) -> "GlobalNetwork":
        """Read the network of a row.

        Raises:
            InputError: the store no longer has the network, the method keeps several networks, or it reads texts.
        """
        artifact = find_artifact(store, "aggregates", row.artifact, row)
        manifest, result = manifest_here(artifact), read_result(artifact)
        require_one_network(row, result)
        dataset, (trunk, name) = datasets.get(row.dataset), split_name(row.model)
        info = read_document(
            find_artifact(store, "data" if trunk is None else "features", manifest.inputs["data"], row), INFO
        )
        if trunk is None and isinstance(dataset.inputs, Texts):
            raise InputError(
                f"model {row.model!r} reads texts as tokens, and its layout is not kept here; allowed: networks of "
                "images, numbers, characters or a trunk's features"
            )
        dataset = dataset if trunk is None else dataset.of_features(trunk.features)
        spec = ModelSpec(name, dataset.inputs, dataset.classes, manifest.settings["model"]["bias"], result.widths)
        network = spec.load(read_tensors(artifact, NETWORK.format(0))).eval()
        return cls(network, spec, dataset, None if trunk is None else trunk.name, info["class_names"])

    @property
    def normalisation(self) -> dict[str, list[float]]:
        """Constants by which an example is normalised, one a channel or a number."""
        return {"mean": list(self.dataset.mean or [0.0]), "std": list(self.dataset.std or [1.0])}

    @property
    def constants_shape(self) -> list[int]:
        """Shape in which these constants fit examples."""
        return [1, -1, *[1] * (len(self.dataset.inputs.shape) - 1)]

    def of_raw_examples(self) -> tuple[nn.Module, Tensor]:
        """Return a network that normalises its examples itself, and two examples, whose images are pixels in [0, 1]."""
        inputs, generator = self.dataset.inputs, torch.Generator().manual_seed(0)
        if isinstance(inputs, Tokens):
            return self.network, inputs.drawn(2, generator)
        mean, std = (
            torch.tensor(self.normalisation[part], dtype=torch.float64).reshape(self.constants_shape)
            for part in ("mean", "std")
        )
        examples = torch.rand(2, *inputs.shape, generator=generator)
        return _Normalising(self.network, mean, std).eval(), examples


class _Normalising(nn.Module):
    """A network behind its normalisation."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, examples: Tensor) -> Tensor:
        """Return a row of outputs for each example."""
        outputs: Tensor = self.network(((examples - self.mean) / self.std).float())
        return outputs


def export(row: Row, store: Store, folder: Path, *, onnx: bool = False) -> None:
    """Write the network of a row, what its user must know, and a script that loads it, into a new folder.

    A network with adapters is written as a folder of PEFT, without the script.

    Args:
        onnx: whether to write the network as ONNX too.

    Raises:
        InputError: the folder exists, the store no longer has the network, the method keeps several networks, the
            network reads texts and has no adapters, or it can't be written as ONNX; nothing is written.
    """
    if folder.exists():
        raise InputError(f"--out={folder} is there; allowed: a new folder")
    if onnx:
        require_packages("onnx", "onnxruntime", "onnxscript", extra="onnx", who="--onnx")
    if isinstance(datasets.get(row.dataset).inputs, Texts) and split_name(row.model)[0] is None:
        _export_adapters(row, store, folder, onnx=onnx)
        return
    found = GlobalNetwork.of(row, store)
    dataset, weights = found.dataset, parameters_of(found.network)
    about = {
        "network": found.spec.name,
        "widths": list(found.spec.widths),
        "features_of": found.trunk,
        "inputs": _inputs(dataset.inputs),
        "normalisation": found.normalisation,
        "constants_shape": found.constants_shape,
        "scaled_by_each_client": dataset.impute is not None,
        "class_names": found.class_names,
        **_about(row, weights),
    }
    with _made(folder) as made:
        torch.export.save(_program(found.network, dataset), made / "network.pt2")
        if onnx:
            write_onnx(found.network, dataset.inputs, made / "network.onnx")
        (made / "weights.safetensors").write_bytes(save(weights))
        (made / "network.json").write_text(json.dumps(about, indent=2) + "\n")
        prepared = "examples" if isinstance(dataset.inputs, Tokens) else "((examples - mean) / std).float()"
        (made / "load.py").write_text(_LOADING % prepared)


def _export_adapters(row: Row, store: Store, folder: Path, *, onnx: bool) -> None:
    """Write a network with adapters as a folder of PEFT, with its weights and what its user must know."""
    found = AdaptedNetwork.of(row, store)
    if onnx:
        raise InputError(f"--onnx of model {row.model!r}, whose encoder is not exported; allowed: without --onnx")
    weights, layout = parameters_of(found.network), found.spec.inputs
    assert isinstance(layout, Texts)
    about = {
        "network": found.spec.name,
        "widths": list(found.spec.widths),
        "inputs": {"kind": "texts", "shape": list(layout.shape), "tokenizer_sha256": layout.digest},
        "class_names": found.class_names,
        **_about(row, weights),
    }
    with _made(folder) as made:
        write_adapter(found.adapter(), made)
        (made / "weights.safetensors").write_bytes(save(weights))
        (made / "network.json").write_text(json.dumps(about, indent=2) + "\n")


def _about(row: Row, weights: Parameters) -> dict[str, Any]:
    return {
        "accuracy": row.accuracy,
        "weights_digest": digest_of(weights),
        "benchmark": row.benchmark,
        "method": row.method,
        "method_settings": row.method_settings,
        **{key: value for key in _SETTINGS if (value := getattr(row, key)) is not None},
    }


@contextmanager
def _made(folder: Path) -> Iterator[Path]:
    """Fill a new folder, which is there only if all its files are; `InputError` if it can't be written."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            made = Path(temporary) / "made"
            made.mkdir()
            yield made
            shutil.move(made, folder)
    except OSError as error:
        # What else goes wrong in between is no fault of the folder.
        if error.errno != errno.ENOSPC and not str(error.filename).startswith(str(folder.parent)):
            raise
        raise InputError(f"{folder} can't be written: {in_one_line(error)}") from error


def _program(network: nn.Module, dataset: DatasetSpec) -> torch.export.ExportedProgram:
    """Trace the network for any number of examples."""
    examples = dataset.inputs.drawn(2, torch.Generator().manual_seed(0))
    program = torch.export.export(network, (examples,), dynamic_shapes=({0: torch.export.Dim("examples")},))
    for node in program.graph.nodes:
        # It names the source files of this machine.
        node.meta.pop("stack_trace", None)
    return program


def _inputs(layout: Layout) -> dict[str, Any]:
    kind = "images" if isinstance(layout, Images) else "tokens" if isinstance(layout, Tokens) else "numbers"
    return {"kind": kind, "shape": list(layout.shape)}


def _differences(rows: Sequence[Row]) -> str:
    """Name the fields in which rows differ, with their values."""
    values = {key: list(dict.fromkeys(getattr(row, key) for row in rows)) for key in _SETTINGS}
    return " and ".join(f"{key} of {shown(found)}" for key, found in values.items() if len(found) > 1) or "row"


def _failure(folder: Path, method: str) -> str | None:
    """Say why a method of a benchmark has no network; None where none of its jobs failed."""
    for one in read_failed(folder / FAILED):
        if any(
            name.startswith((f"aggregate {method} of ", f"evaluate {method} of ")) for name in (one.job, *one.left_out)
        ):
            return f"{one.job} failed: {shortened(one.reason)}"
    return None
