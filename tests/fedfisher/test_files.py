"""Clients' files: what the command writes, what a reader in NumPy sees, and what is refused."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import fedfisher
from fedfisher.files import METADATA, ClientHeader
from tests.fedfisher.own import client, clients, examples, network

EXAMPLE = Path(__file__).parents[2] / "examples/read_client_file"
STATISTICS = ("kfac", "diagonal_fisher", "gram", "label_counts", "class_moments")


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Files of three clients."""
    written = [tmp_path / f"client{number}.safetensors" for number in range(3)]
    settings = {"class_moments": {"directions": 1}}
    for path, one in zip(written, clients(), strict=True):
        fedfisher.write_client(one, path, of=STATISTICS, settings=settings)
    return written


def contents(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()[METADATA]), load_file(path)


def rewrite(path: Path, change: Callable[[dict[str, Any], dict[str, Tensor]], None]) -> None:
    header, tensors = contents(path)
    change(header, tensors)
    save_file(tensors, path, {METADATA: json.dumps(header)})


def read(paths: list[Path]) -> list[fedfisher.ClientFile]:
    return [fedfisher.read_client(path, network()) for path in paths]


@pytest.mark.parametrize("fisher", [{"tolerance": 0.05}, {"directions": 3}, {"estimator": "monte_carlo", "samples": 2}])
def test_a_file_has_the_settings_that_its_fisher_uses(tmp_path: Path, fisher: dict[str, Any]) -> None:
    given = fedfisher.Client(network(), examples(), fisher=fisher)
    fedfisher.write_client(given, tmp_path / "client.safetensors", of=("kfac",))
    found = fedfisher.read_client(tmp_path / "client.safetensors", network())
    assert found.network.fisher == given.network.fisher


@pytest.mark.parametrize("budget", ["none", "fedavg"])
@pytest.mark.parametrize("method", ["fedavg", "fedfisher_kfac", "fedfisher_diag", "regmean", "pfnm"])
def test_files_merge_to_the_same_bits_as_their_clients(paths: list[Path], method: str, budget: str) -> None:
    settings: dict[str, Any] = {"method": method, "budget": budget, "validation": examples()}
    found, expected = fedfisher.merge(read(paths), **settings), fedfisher.merge(clients(), **settings)
    assert all(torch.equal(one, other) for one, other in zip(found.parameters(), expected.parameters(), strict=True))


def test_settings_of_a_statistic_are_those_of_the_file(paths: list[Path]) -> None:
    chosen = {"class_moments": {"directions": 1}}
    settings: dict[str, Any] = {"method": "mixture_distillation", "steps": 2, "samples": 4}
    found = fedfisher.merge(read(paths), statistics=chosen, **settings)
    expected = fedfisher.merge(clients(), statistics=chosen, **settings)
    assert all(torch.equal(one, other) for one, other in zip(found.parameters(), expected.parameters(), strict=True))
    with pytest.raises(
        fedfisher.InputError, match=r"has 'class_moments' with settings \{'directions': 1.*; allowed: \{"
    ):
        fedfisher.merge(read(paths), **settings)


def test_the_schema_is_that_of_the_headers_that_are_written(paths: list[Path]) -> None:
    schema = json.loads((EXAMPLE / "header.schema.json").read_text())
    assert schema == ClientHeader.model_json_schema()
    header, _ = contents(paths[0])
    jsonschema.validate(header, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(header | {"version": 2}, schema)


def test_a_reader_in_numpy_sees_the_same(paths: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    code = EXAMPLE / "read.py"
    assert len(code.read_text().splitlines()) <= 50
    header, tensors = runpy.run_path(str(code))["read"](paths[1])
    given = client(1)
    assert header["examples"] == given.num_examples
    for statistic in ("kfac", "gram"):
        expected = given.statistics(statistic)
        assert tensors[statistic].keys() == expected.keys()
        assert all((tensors[statistic][name] == tensor.numpy()).all() for name, tensor in expected.items())
    assert all((tensors["weights"][name] == tensor.numpy()).all() for name, tensor in given.weights.items())


def other_version(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    header["version"] = 2


def other_weights(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    tensors["weights/6.bias"] += 1


def other_shape(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    tensors[next(name for name in tensors if name.startswith("kfac/"))] = torch.ones(2, 2)


def other_fishers(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    header["fisher"]["estimator"] = "empirical"


def no_number(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    next(one for name, one in tensors.items() if name.startswith("kfac/"))[0] = torch.nan


def no_tensor(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    del tensors[next(name for name in tensors if name.startswith("kfac/"))]


def no_statistic(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    del header["statistics"]["kfac"]


def no_weights(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    del header["statistics"]["weights"]


def unknown_key(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    header["colour"] = "red"


def no_classes(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    header["network"]["classes"] = 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_version, "format version 2; allowed: 1$"),
        (other_weights, "has statistics of weights [0-9a-f]{64}; allowed: [0-9a-f]{64}, its own$"),
        (other_fishers, "client 1 has Fishers that are 'empirical', but client 0 has 'exact'; allowed: one network$"),
        (
            other_shape,
            r"client 1: .* has 'kfac/.*' of shape \(2, 2\) in torch.float32; allowed: .*, as its header says$",
        ),
        (no_number, "has 'kfac/.*' with numbers that are not finite"),
        (no_tensor, "can't be read: SafetensorError"),
        (no_statistic, "client 1: .* has no 'kfac'; its statistics are weights, "),
        (no_weights, "has no 'weights'; its statistics are kfac, "),
        (unknown_key, "unknown setting 'colour'"),
        (no_classes, "is of a network with 4 outputs; allowed: the 3 of 'Sequential'"),
    ],
)
def test_files_that_are_not_what_they_say_are_refused(
    paths: list[Path], change: Callable[[dict[str, Any], dict[str, Tensor]], None], message: str
) -> None:
    rewrite(paths[1], change)
    with pytest.raises(fedfisher.InputError, match=message) as caught:
        fedfisher.merge(read(paths), method="fedfisher_kfac")
    assert "\n" not in str(caught.value)


def test_files_of_other_networks_and_other_files_are_refused(paths: list[Path], tmp_path: Path) -> None:
    wider = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    with pytest.raises(fedfisher.InputError, match=r"client0\.safetensors has '0\.bias'; allowed: the weights of"):
        fedfisher.read_client(paths[0], wider)
    (tmp_path / "text").write_text("no file of tensors")
    save_file({"weights/a": torch.ones(2)}, tmp_path / "bare")
    for name, message in (
        ("text", "can't be read: SafetensorError"),
        ("bare", "has no 'fedfisher_client' in its metadata"),
        ("absent", "there is no such file"),
    ):
        with pytest.raises(fedfisher.InputError, match=f"{name}.*{message}"):
            fedfisher.read_client(tmp_path / name, network())


def test_nothing_is_written_of_a_client_without_the_statistic(tmp_path: Path) -> None:
    with pytest.raises(fedfisher.InputError, match="further networks"):
        fedfisher.write_client(client(), tmp_path / "client", of=["further_weights"])
    with pytest.raises(fedfisher.InputError, match="unknown statistic 'kfca'"):
        fedfisher.write_client(client(), tmp_path / "client", of=["kfca"])
    assert list(tmp_path.iterdir()) == []


def test_files_of_other_forms_of_kfac_are_not_merged(tmp_path: Path) -> None:
    paths = [tmp_path / f"{form}.safetensors" for form in ("expand", "reduce")]
    for path, form in zip(paths, ("expand", "reduce"), strict=True):
        given = fedfisher.Client(network(), examples(), fisher={"weight_sharing": form})
        fedfisher.write_client(given, path, of=["kfac"])
    read = [fedfisher.read_client(path, network()) for path in paths]
    with pytest.raises(fedfisher.InputError, match=r"Fishers that are 'exact, reduce', but client 0 has 'exact'"):
        fedfisher.merge(read, method="fedfisher_kfac")
