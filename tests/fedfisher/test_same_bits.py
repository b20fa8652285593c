"""What a caller merges has the bits of the benchmark's own global networks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fedfisher
from fedfisher_core.methods.method import methods
from fedfisher_core.models.combined import Combined
from tests.fedfisher.benchmarked import CLIENTS, PREPROCESSING, Benchmarked, benchmarked
from tests.methods.every import NAMES, OF_ADAPTERS, OF_FEATURES, OF_ROWS, QUICK

REFUSED = {"centralised": "trains one network on the data of all clients", "local_mean": "predicts nothing"}
MODELS = {name: {"name": name, "bias": name == "linear"} for name in ("tiny", "linear", "mlp", "adapted")}


def model_of(name: str) -> str:
    """The network that a method can serve."""
    if name in OF_ROWS:
        return "mlp"
    if name in OF_ADAPTERS:
        return "adapted"
    return "linear" if name in OF_FEATURES else "tiny"


def settings_of(name: str) -> dict[str, Any]:
    return {key: value for key, value in QUICK.get(name, {}).items() if key != "wire"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Iterator[dict[str, Benchmarked]]:
    """One benchmark a network with all methods that serve it, uncompressed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDFISHER_DATA_DIR", str(tiny_folder))
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        yield {
            name: benchmarked(
                tmp_path_factory.mktemp(name),
                {one: settings_of(one) for one in NAMES if model_of(one) == name},
                model=model,
                wire={"budget": "none"},
            )
            for name, model in MODELS.items()
        }
        torch.set_num_threads(threads)


def merged(run: Benchmarked, name: str, **changes: Any) -> nn.Module:
    validation = run.validation
    given = {
        "method": name,
        "validation": (validation.inputs, validation.labels),
        "initial": run.start,
        "preprocessing": PREPROCESSING,
        "generator": run.server_generator(),
        **settings_of(name),
    }
    return fedfisher.merge(run.clients, **(given | changes))


def networks_of(module: nn.Module) -> list[nn.Module]:
    if not isinstance(module, fedfisher.Ensemble):
        return [module]
    return [part for one in module.networks for part in (one.networks if isinstance(one, Combined) else [one])]


@pytest.mark.parametrize("name", NAMES)
def test_every_method_makes_the_networks_of_the_benchmark(runs: dict[str, Benchmarked], name: str) -> None:
    run = runs[model_of(name)]
    if name in REFUSED:
        with pytest.raises(fedfisher.InputError, match=f"^method {name!r} .*{REFUSED[name]}"):
            merged(run, name)
        return
    made, expected = merged(run, name), run.aggregate(name)
    networks = networks_of(made)
    assert len(networks) == len(expected.networks)
    for network, parameters in zip(networks, expected.networks, strict=True):
        assert type(network) is type(run.trained(0))
        assert not network.training
        found = dict(network.named_parameters())
        assert found.keys() == parameters.keys()
        assert all(torch.equal(found[key], parameters[key]) for key in parameters)
    if isinstance(made, fedfisher.Ensemble):
        assert made.combine is expected.combine
        assert (made.weights is None) == (expected.weights is None)
        assert made.weights is None or torch.equal(made.weights, expected.weights)
    if expected.combiner is not None:
        (combined,) = made.networks
        assert combined.combiner.keys() == expected.combiner.keys()
        assert all(torch.equal(combined.combiner[key], expected.combiner[key]) for key in expected.combiner)


@pytest.mark.parametrize(
    "name", ["ensemble", "ensemble_logits", "ensemble_by_labels", "ensemble_by_holders", "fafi", "fens"]
)
def test_an_ensemble_predicts_as_the_benchmark_measures(runs: dict[str, Benchmarked], name: str) -> None:
    run = runs["tiny"]
    test = run.test
    predicted = merged(run, name)(test.inputs)
    assert predicted.exp().sum(1).allclose(torch.ones((), dtype=torch.float64))
    right = (predicted.argmax(1) == test.labels).double().mean()
    assert right == run.done.measures(name).accuracy


@pytest.mark.parametrize("name", ["fedavg", "fedfisher_kfac", "regmean", "fisher_merge"])
@pytest.mark.parametrize("encoding", ["fedfisher", "paper"])
def test_uploads_within_a_budget_are_those_of_the_benchmark(workplace: Path, name: str, encoding: str) -> None:
    run = benchmarked(workplace, {name: {}}, wire={"budget": "fedavg", "format": encoding})
    wire: dict[str, Any] = {"budget": "fedavg", "format": encoding}
    uploads = [client.upload(name, **wire) for client in run.clients]
    assert [one.data for one in uploads] == [run.payload(name, number) for number in CLIENTS]
    # A server has bytes alone, and an untrained network.
    network = fedfisher.Network.of(run.start, run.examples(0).inputs[:1])
    received = [fedfisher.Upload(one.data, network) for one in uploads]
    validation = (run.validation.inputs, run.validation.labels)
    made = fedfisher.merge(received, method=name, validation=validation, **wire)
    expected = run.aggregate(name).networks[0]
    assert all(torch.equal(parameter, expected[key]) for key, parameter in made.named_parameters())


@pytest.mark.parametrize("fisher", [{"estimator": "monte_carlo", "samples": 2}, {"estimator": "empirical"}])
def test_settings_of_fishers_are_those_of_the_benchmark(workplace: Path, fisher: dict[str, Any]) -> None:
    run = benchmarked(workplace, {"fedlpa": settings_of("fedlpa")}, wire={"budget": "none"}, fisher=fisher)
    clients = [run.client(number, fisher=fisher) for number in CLIENTS]
    made = fedfisher.merge(clients, method="fedlpa", **settings_of("fedlpa"))
    expected = run.aggregate("fedlpa").networks[0]
    assert all(torch.equal(parameter, expected[key]) for key, parameter in made.named_parameters())


def test_no_setting_of_a_method_is_taken_for_one_of_merging() -> None:
    own = {"clients", *fedfisher.merge.__kwdefaults__} | {"method"}
    assert [name for name in methods if own & methods.get(name).settings.model_fields.keys()] == []


def test_a_student_may_begin_with_the_initial_network(workplace: Path) -> None:
    settings = settings_of("dense") | {"start": "initial"}
    run = benchmarked(workplace, {"dense": settings}, wire={"budget": "none"})
    expected = run.aggregate("dense").networks[0]
    made = merged(run, "dense", **settings)
    assert all(torch.equal(parameter, expected[key]) for key, parameter in made.named_parameters())
    with pytest.raises(fedfisher.InputError, match=r"^method 'dense': the weights that all clients started from"):
        merged(run, "dense", **settings, initial=None)
