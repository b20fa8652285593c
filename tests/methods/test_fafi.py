"""FAFI: a prediction by the mean feature of all networks and their mean prototypes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.tensors import select
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.store import read_tensors
from fedfisher_core.experiments.benchmark.plan import make_plan, make_rows
from fedfisher_core.experiments.benchmark.rows import Role, role_of
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.global_models import read_model
from fedfisher_core.models.evaluation import accuracy
from fedfisher_core.models.spec import Parameters
from tests import tiny
from tests.client.test_features import hidden
from tests.methods import heads  # noqa: F401
from tests.methods.clients import aggregate, bind_written
from tests.walked import Walked, walk_tiny

CLIENTS = 3
TRAINED = {"epochs": 20, "objective": "prototypes"}


def uploads_of(*clients: tuple[int, Parameters]) -> list[Upload]:
    return [Upload(size, {Weights: Weights(weights)}) for size, weights in clients]


def test_the_mean_feature_meets_the_mean_prototypes() -> None:
    one, other = (tiny.initial(seed=seed) for seed in (1, 2))
    # Features of other lengths say whether they are normalised before the mean.
    other["hidden.weight"] *= 5
    made, inputs = aggregate("fafi", uploads_of((30, one), (10, other))), tiny.examples(9).inputs
    (predicting,) = made.modules(tiny.TINY)
    found = predicting(inputs)
    last = one["head.weight"].tolist(), other["head.weight"].tolist()
    prototypes = [[(a + b) / 2 for a, b in zip(*rows, strict=True)] for rows in zip(*last, strict=True)]
    for index, features in enumerate(zip(hidden(one, inputs).tolist(), hidden(other, inputs).tolist(), strict=True)):
        mean = [0.75 * a + 0.25 * b for a, b in zip(*features, strict=True)]
        length = sum(entry**2 for entry in mean) ** 0.5
        expected = [sum(p * entry for p, entry in zip(row, mean, strict=True)) / length for row in prototypes]
        assert found[index].tolist() == pytest.approx(expected, abs=1e-5)
    assert [network.keys() for network in made.networks] == [one.keys()] * 2
    assert all(torch.equal(made.networks[1][name], tensor) for name, tensor in other.items())


def test_one_client_alone_predicts_by_its_own_prototypes_without_its_bias() -> None:
    weights, inputs = tiny.initial(tiny.TINY_WITH_BIAS, seed=1), tiny.examples(9).inputs
    outputs = []
    for bias in (0.0, 100.0):
        weights["head.bias"] = torch.tensor([bias, 0.0, 0.0])
        (predicting,) = aggregate("fafi", uploads_of((7, weights)), spec=tiny.TINY_WITH_BIAS).modules(
            tiny.TINY_WITH_BIAS
        )
        outputs.append(predicting(inputs))
    network = tiny.TINY_WITH_BIAS.load(weights)
    features = torch.relu(network.hidden(torch.relu(network.conv(inputs)).flatten(1)))
    expected = functional.normalize(features, dim=1) @ weights["head.weight"].T
    torch.testing.assert_close(outputs[0], expected)
    assert torch.equal(*outputs)


def test_clients_count_in_any_order() -> None:
    clients = [(size, tiny.initial(seed=size)) for size in (5, 20, 40)]
    inputs, outputs = tiny.examples(9).inputs, []
    for order in (clients, clients[::-1]):
        (predicting,) = aggregate("fafi", uploads_of(*order)).modules(tiny.TINY)
        outputs.append(predicting(inputs))
    torch.testing.assert_close(*outputs)


def by_hand(done: Walked, method: str) -> float:
    """The accuracy of stored networks, by the formula."""
    dataset, artifact = load_data(done.data), done.aggregate(method)
    networks = [read_tensors(artifact, f"network_{one}.safetensors") for one in range(CLIENTS)]
    shares = read_tensors(artifact, "combiner.safetensors")["shares"]
    test = select(dataset.test, dataset.spec)
    mean = sum(share * hidden(one, test.inputs) for share, one in zip(shares, networks, strict=True))
    prototypes = torch.stack([one["head.weight"] for one in networks]).mean(0)
    return float(((mean @ prototypes.T).argmax(1) == test.labels).double().mean())


def test_clients_train_prototypes_and_what_is_stored_predicts_as_it_was_measured(workplace: Path) -> None:
    done = walk_tiny(workplace, {"ensemble": {}, "fafi": {}}, train=TRAINED, partition={"alpha": [50.0]})
    rows = done.rows
    assert rows["fafi"].accuracy == by_hand(done, "fafi") > 0.5
    model = read_model(done.aggregate("fafi"), done.federation)
    dataset = load_data(done.data)
    (predicting,) = model.modules(done.federation.spec)
    assert accuracy(predicting, select(dataset.test, dataset.spec)) == rows["fafi"].accuracy
    # Each client gets all networks, and a number for each.
    assert rows["fafi"].upload_bits == rows["ensemble"].upload_bits
    assert rows["fafi"].download_bits == rows["ensemble"].download_bits + CLIENTS * 32 * CLIENTS
    assert rows["fafi"].objective == "prototypes"
    assert role_of(rows["fafi"]) is Role.ENSEMBLE


def test_networks_of_any_objective_serve_and_runs_repeat_to_the_last_bit(workplace: Path) -> None:
    train = {"objective": ["plain", "prototypes"]}
    made = []
    for folder in ("first", "second"):
        done = walk_tiny(workplace / folder, {"fafi": {}}, train=train)
        made.append({name: artifact.digest for name, artifact in done.outcome.artifacts.items()})
    assert made[0] == made[1]
    losses = {row.objective: row.loss for row in make_rows(done.plan, done.outcome)}
    assert losses["plain"] != losses["prototypes"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": {"count": 2}}, r"rounds\.count=2, but method 'fafi' returns no single network"),
        (
            {"wire": {"budget": "none", "server_view": "secure_sum"}},
            "'secure_sum': method 'fafi' needs each",
        ),
        ({"methods": {"fafi": {"label_prior": -1}}}, r"methods\.fafi\.label_prior"),
        (
            {"model": {"name": "head_and_norm"}},
            r"method 'fafi' can't serve model 'head_and_norm': layer 'norm' has type LayerNorm; allowed: .* is Linear",
        ),
        (
            {"model": {"name": "rows_of_pixels"}},
            r"method 'fafi' can't serve .*: layer 'head', a Linear, sees inputs of",
        ),
        (
            {"model": {"name": "pairs_of_outputs"}},
            r"method 'fafi' can't serve .*: the last layer with weights has 6 rows; allowed: one row a class, 3",
        ),
    ],
)
def test_what_it_can_not_work_with_is_refused_before_any_work(
    workplace: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make_plan(tiny.tiny_settings(workplace, **({"methods": {"fafi": {}}} | changes)))
    assert "\n" not in str(caught.value)


def test_networks_of_one_layer_predict_by_their_inputs() -> None:
    bind_written("fafi", {}, [tiny.LINEAR])
    weights = tiny.initial(tiny.LINEAR)
    (predicting,) = aggregate("fafi", uploads_of((4, weights)), spec=tiny.LINEAR).modules(tiny.LINEAR)
    inputs = tiny.examples(5).inputs
    expected = functional.normalize(inputs.flatten(1), dim=1) @ weights["head.weight"].T
    torch.testing.assert_close(predicting(inputs), expected)
