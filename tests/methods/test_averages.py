from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedfisher_core.client.statistics.dense_fisher import DenseFisher
from fedfisher_core.client.statistics.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.shared.averaging import mean_parameters, median_parameters
from fedfisher_core.models.evaluation import accuracy
from fedfisher_core.models.spec import ModelSpec
from tests import tiny
from tests.methods.clients import SIZES, aggregate, bind_written, empty, made_up_uploads, server, trained_uploads
from tests.models.test_batch_norm import SPEC as BATCH_NORM

SPECS = [tiny.TINY, tiny.TINY_WITH_BIAS]
by_bias = pytest.mark.parametrize("spec", SPECS, ids=["no bias", "bias"])
VARIANTS = ["fedfisher_diag", "fedfisher_kfac", "fedfisher_full"]
P = np.array(SIZES) / sum(SIZES)


@pytest.fixture(scope="module")
def clients() -> list[Upload]:
    return trained_uploads()


def weights(upload: Upload) -> dict[str, np.ndarray]:
    return {name: tensor.double().numpy() for name, tensor in upload[Weights].tensors.items()}


def different(spec: ModelSpec) -> list[Upload]:
    return made_up_uploads([tiny.initial(spec, seed=seed) for seed in range(3)], spec)


METHODS: list[tuple[str, dict[str, Any]]] = [
    ("fedavg", {}),
    ("fisher_merge", {}),
    ("regmean", {}),
    ("fedfisher_diag", {}),
    ("fedfisher_diag", {"solver": "conjugate_gradients"}),
    ("fedfisher_diag", {"solver": {"name": "paper", "steps": 200}}),
    ("fedfisher_kfac", {}),
    ("fedfisher_kfac", {"solver": {"name": "paper", "steps": 200}}),
    ("fedfisher_kfac", {"solver": {"name": "gradient_descent", "steps": 50}}),
    ("mats", {}),
    ("mats", {"off_diagonal": [0.3]}),
    ("fedfisher_full", {}),
    ("fedfisher_full", {"solver": "closed_form"}),
    ("fedavg_by_holders", {}),
    ("otfusion_by_holders", {}),
    ("otfusion", {"correction": [True]}),
    ("otfusion", {"correction": [True], "ground_metric": "activations"}),
    ("ma_echo", {}),
    ("ma_echo", {"local_update": "algorithm_1", "weights": "qp", "normalise": True}),
    ("ma_echo_official", {}),
    ("ma_echo_official", {"normalise": True, "step_size": 0.05}),
    ("ma_echo_ot", {}),
]


@pytest.mark.drawn(12)
@by_bias
@pytest.mark.parametrize(("name", "settings"), METHODS)
def test_clients_of_one_mind_keep_their_model(name: str, settings: dict[str, Any], spec: ModelSpec) -> None:
    same = tiny.initial(spec, seed=5)
    (network,) = aggregate(name, made_up_uploads([same] * 3, spec), spec=spec, **settings).networks
    assert list(network) == list(same)
    for key, tensor in same.items():
        assert torch.allclose(network[key], tensor, atol=1e-5), key


@pytest.mark.drawn(8)
@pytest.mark.parametrize(("name", "settings"), METHODS)
def test_aggregation_is_reproducible_and_leaves_the_uploads_alone(name: str, settings: dict[str, Any]) -> None:
    uploads, untouched = different(tiny.TINY), different(tiny.TINY)
    (first,), (second,) = (aggregate(name, uploads, **settings).networks for _ in range(2))
    assert all(torch.equal(first[key], second[key]) for key in first)
    for upload, original in zip(uploads, untouched, strict=True):
        for kind, statistic in original.statistics.items():
            for key, tensor in statistic.tensors.items():
                assert torch.equal(upload.statistics[kind].tensors[key], tensor), (kind, key)


@by_bias
def test_fedavg_weights_clients_by_their_numbers_of_examples(spec: ModelSpec) -> None:
    uploads = different(spec)
    (network,) = aggregate("fedavg", uploads, spec=spec).networks
    for key, tensor in network.items():
        expected = sum(p * weights(upload)[key] for p, upload in zip(P, uploads, strict=True))
        assert tensor.numpy() == pytest.approx(expected, abs=1e-6)


def merged(uploads: list[Upload], floor: float) -> dict[str, np.ndarray]:
    """The closed form of FisherMerge, one coordinate at a time."""
    result = {}
    for key, like in weights(uploads[0]).items():
        flat = np.empty(like.size)
        for index in range(like.size):
            fishers = [float(upload[DiagonalFisher].tensors[key].flatten()[index]) for upload in uploads]
            values = [float(upload[Weights].tensors[key].flatten()[index]) for upload in uploads]
            total = sum(p * f for p, f in zip(P, fishers, strict=True))
            if total < floor or total == 0:
                flat[index] = sum(p * w for p, w in zip(P, values, strict=True))
            else:
                flat[index] = sum(p * f * w for p, f, w in zip(P, fishers, values, strict=True)) / total
        result[key] = flat.reshape(like.shape)
    return result


@by_bias
def test_fisher_merge_weights_coordinates_by_their_fisher(spec: ModelSpec) -> None:
    uploads = different(spec)
    (network,) = aggregate("fisher_merge", uploads, spec=spec).networks
    expected = merged(uploads, 1e-6)
    for key, tensor in network.items():
        assert tensor.numpy() == pytest.approx(expected[key], abs=1e-5)


@pytest.mark.parametrize("floor", [0.0, 1e-6, 0.5, 100.0])
def test_fisher_merge_averages_where_the_fisher_says_nothing(floor: float) -> None:
    uploads = different(tiny.TINY)
    for upload in uploads:
        upload[DiagonalFisher].tensors["hidden.weight"][:2] = 0
        upload[DiagonalFisher].tensors["hidden.weight"][2] = 1e-9
    (network,) = aggregate("fisher_merge", uploads, fisher_floor=floor).networks
    expected = merged(uploads, floor)
    for key, tensor in network.items():
        assert tensor.numpy() == pytest.approx(expected[key], abs=1e-5)
    mean = aggregate("fedavg", uploads).networks[0]
    assert torch.allclose(network["hidden.weight"][:2], mean["hidden.weight"][:2])
    taken_from_the_mean = torch.isclose(network["head.weight"], mean["head.weight"], atol=1e-7).double().mean()
    assert taken_from_the_mean == 1 if floor == 100 else taken_from_the_mean < 1


def test_fisher_merge_loses_nothing_to_tiny_fishers() -> None:
    client = tiny.initial()
    fishers = {name: torch.full_like(tensor, 1e-44) for name, tensor in client.items()}
    upload = Upload(5, {Weights: Weights(client), DiagonalFisher: DiagonalFisher(fishers)})
    (network,) = aggregate("fisher_merge", [upload, upload], fisher_floor=0.0).networks
    assert all(torch.allclose(network[name], tensor, rtol=1e-6) for name, tensor in client.items())


def test_fisher_merge_without_its_floor_is_fedfisher_with_diagonals_in_closed_form() -> None:
    uploads = different(tiny.TINY)
    for index, upload in enumerate(uploads):
        upload[DiagonalFisher].tensors["hidden.weight"][:2] = 0
        upload[DiagonalFisher].tensors["hidden.weight"][2] = 1e-9 * (1 + index)
    fisher, floored = (aggregate("fisher_merge", uploads, fisher_floor=floor).networks[0] for floor in (0.0, 1e-6))
    (closed,) = aggregate("fedfisher_diag", uploads, solver="closed_form").networks
    for key, tensor in closed.items():
        assert tensor.numpy() == pytest.approx(fisher[key].numpy(), abs=1e-5)
    # The floor is what sets them apart, and where the total is 0 nothing does.
    assert torch.allclose(closed["hidden.weight"][:2], floored["hidden.weight"][:2], atol=1e-6)
    assert not torch.allclose(closed["hidden.weight"][2], floored["hidden.weight"][2], atol=1e-4)


def least_squares(uploads: list[Upload], inputs: list[np.ndarray], layer: str) -> np.ndarray:
    """The matrix W of least sum_i p_i mean |x W^T - x W_i^T|^2 over the inputs x of client i; of several, the least."""
    rows = [np.sqrt(p / len(x)) * x for p, x in zip(P, inputs, strict=True)]
    targets = [row @ weights(upload)[f"{layer}.weight"].T for row, upload in zip(rows, uploads, strict=True)]
    return np.linalg.lstsq(np.concatenate(rows), np.concatenate(targets), rcond=1e-9)[0].T


@by_bias
def test_regmean_solves_the_least_squares_problem_of_every_linear_layer(spec: ModelSpec) -> None:
    uploads = different(spec)
    rng = np.random.default_rng(0)
    inputs: dict[str, list[np.ndarray]] = {}
    for layer, shape in Gram.shapes(spec).items():
        inputs[layer] = [rng.standard_normal((size, shape[0])) for size in SIZES]
        for x, upload in zip(inputs[layer], uploads, strict=True):
            # An input that is always 0, such as a pixel at the rim.
            x[:, 1] = 0
            upload[Gram].tensors[layer] = torch.from_numpy(x.T @ x / len(x)).float()
    (network,) = aggregate("regmean", uploads, spec=spec, off_diagonal=[1.0]).networks
    for key, tensor in network.items():
        layer, kind = key.rsplit(".", 1)
        if layer in inputs and kind == "weight":
            assert tensor.numpy() == pytest.approx(least_squares(uploads, inputs[layer], layer), abs=1e-3)
            assert tensor[:, 1].abs().max() < 1e-6
        else:
            assert tensor.numpy() == pytest.approx(np.mean([weights(one)[key] for one in uploads], axis=0), abs=1e-6)


def test_regmean_shrinks_the_off_diagonal_entries() -> None:
    uploads = different(tiny.TINY)
    (network,) = aggregate("regmean", uploads, off_diagonal=[0.3]).networks
    for layer in ("hidden", "head"):
        left = right = 0.0
        for p, upload in zip(P, uploads, strict=True):
            gram = upload[Gram].tensors[layer].double().numpy()
            shrunk = np.where(np.eye(len(gram), dtype=bool), gram, 0.3 * gram)
            left = left + p * shrunk
            right = right + p * shrunk @ weights(upload)[f"{layer}.weight"].T
        expected = np.linalg.solve(left, right).T
        assert network[f"{layer}.weight"].numpy() == pytest.approx(expected, abs=1e-5)


def test_regmean_keeps_the_scale_that_the_server_likes_best(clients: list[Upload]) -> None:
    scales = [0.0, 0.1, 0.5, 0.9, 1.0]
    alone = {scale: aggregate("regmean", clients, off_diagonal=[scale]).networks[0] for scale in scales}
    validation = tiny.examples(30, seed=99)
    scores = {scale: accuracy(tiny.TINY.load(network), validation) for scale, network in alone.items()}
    assert len(set(scores.values())) > 1
    result = aggregate("regmean", clients, off_diagonal=scales)
    best = max(scores.values())
    chosen = result.details["off_diagonal"]
    assert scores[chosen] == best == result.details["validation_accuracy"]
    assert chosen == next(scale for scale in scales if scores[scale] == best)
    assert all(torch.equal(result.networks[0][key], alone[chosen][key]) for key in alone[chosen])


def matrix(parameters: dict[str, Tensor], layer: str) -> Tensor:
    weight = parameters[f"{layer}.weight"].double().flatten(1)
    bias = parameters.get(f"{layer}.bias")
    return weight if bias is None else torch.cat([weight, bias.double()[:, None]], 1)


def objective(name: str, uploads: list[Upload], parameters: dict[str, Tensor]) -> float:
    """sum_i p_i (w - w_i)^T F_i (w - w_i) with dense matrices."""
    total = 0.0
    for p, upload in zip(P, uploads, strict=True):
        own = upload[Weights].tensors
        if name == "fedfisher_diag":
            for key, fisher in upload[DiagonalFisher].tensors.items():
                total += p * float((fisher.double() * (parameters[key].double() - own[key].double()) ** 2).sum())
        elif name == "fedfisher_full":
            keys = list(own)
            difference = torch.cat([(parameters[key].double() - own[key].double()).flatten() for key in keys])
            total += p * float(difference @ upload[DenseFisher].tensors["matrix"].double() @ difference)
        else:
            for layer in ("conv", "hidden", "head"):
                factors = upload[KFAC].tensors
                block = torch.kron(factors[f"{layer}.outputs"].double(), factors[f"{layer}.inputs"].double())
                difference = (matrix(parameters, layer) - matrix(own, layer)).flatten()
                total += p * float(difference @ block @ difference)
    return total


SOLVERS = [
    *((name, solver) for name in ("fedfisher_diag", "fedfisher_full") for solver in ("closed_form",)),
    *((name, solver) for name in ("fedfisher_diag", "fedfisher_kfac") for solver in ("paper",)),
    *((name, solver) for name in VARIANTS for solver in ("conjugate_gradients", "gradient_descent")),
]


@pytest.mark.parametrize(("name", "solver"), SOLVERS)
def test_fedfisher_lowers_its_objective_below_that_of_the_mean(name: str, solver: str, clients: list[Upload]) -> None:
    result = aggregate(name, clients, solver=solver)
    mean = aggregate("fedavg", clients).networks[0]
    reached = objective(name, clients, result.networks[0])
    assert reached < objective(name, clients, mean)
    assert result.details["objective"] == pytest.approx(reached, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("fedfisher_diag", "closed_form"),
        ("fedfisher_full", "closed_form"),
        ("fedfisher_kfac", {"name": "gradient_descent", "steps": 10000, "tolerance": 1e-7, "select": False}),
    ],
)
def test_solvers_that_run_to_their_end_meet_at_the_minimum(name: str, other: Any, clients: list[Upload]) -> None:
    gradients = {"name": "conjugate_gradients", "steps": 1000, "tolerance": 1e-7, "damping": 0}
    first, second = (
        objective(name, clients, aggregate(name, clients, solver=solver).networks[0]) for solver in (gradients, other)
    )
    start = objective(name, clients, aggregate("fedavg", clients).networks[0])
    assert first == pytest.approx(second, rel=0.01, abs=0.01 * start)
    assert first < 0.9 * start


@pytest.mark.parametrize("name", ["fedfisher_diag", "fedfisher_kfac"])
def test_fedfisher_selects_on_the_validation_set(name: str, clients: list[Upload]) -> None:
    def chosen(steps: int, check_every: int) -> dict[str, float]:
        solver = {"name": "paper", "steps": steps, "check_every": check_every}
        return aggregate(name, clients, solver=solver).details

    checked = [chosen(1 + 50 * count, 50)["validation_accuracy"] for count in range(4)]
    assert checked == sorted(checked)
    assert chosen(40, 100)["selected_step"] == 1
    result = aggregate(name, clients, solver="paper")
    score = accuracy(tiny.TINY.load(result.networks[0]), tiny.examples(30, seed=99))
    assert result.details["validation_accuracy"] == score


def test_an_unknown_solver_or_a_setting_of_another_is_refused() -> None:
    with pytest.raises(InputError, match=r"methods\.fedfisher_kfac\.solver=.*'closed_form'.*'conjugate_gradients'"):
        bind_written("fedfisher_kfac", {"solver": "closed_form"}, [tiny.TINY])
    with pytest.raises(InputError, match=r"methods\.fedfisher_diag\.solver\.closed_form\.steps=3: "):
        bind_written("fedfisher_diag", {"solver": {"name": "closed_form", "steps": 3}}, [tiny.TINY])


@pytest.mark.parametrize(
    ("name", "settings", "uses"),
    [
        ("fedavg", {}, False),
        ("fisher_merge", {}, False),
        ("regmean", {"off_diagonal": [0.9]}, False),
        ("regmean", {}, True),
        ("fedfisher_diag", {"solver": "paper"}, True),
        ("fedfisher_diag", {"solver": "closed_form"}, False),
        ("fedfisher_kfac", {"solver": {"name": "conjugate_gradients", "select": True}}, True),
        ("fedfisher_kfac", {"solver": {"name": "conjugate_gradients", "select": False}}, False),
        ("ensemble", {}, False),
        ("local_mean", {}, False),
    ],
)
def test_the_use_of_the_validation_set_is_noted(
    name: str, settings: dict[str, object], uses: bool, clients: list[Upload]
) -> None:
    held = server()
    assert not held.used_validation
    bound = bind_written(name, settings, [tiny.TINY])
    bound(held, clients)
    assert held.used_validation is uses
    assert bound.validates is uses


def test_to_ask_for_a_validation_set_is_not_to_use_it() -> None:
    held, bare = server(), server(validation=empty())
    assert held.can_validate
    assert not bare.can_validate
    assert not held.used_validation
    assert len(held.validation) == 30
    assert held.used_validation


@pytest.mark.parametrize(
    ("name", "settings"),
    [("regmean", {}), ("fedfisher_diag", {"solver": "paper"}), ("fedfisher_kfac", {"solver": "paper"})],
)
def test_selection_without_a_validation_set_is_refused(
    name: str, settings: dict[str, Any], clients: list[Upload]
) -> None:
    with pytest.raises(InputError, match="validation images, of which it has none"):
        aggregate(name, clients, validation=empty(), **settings)


def test_methods_that_select_nothing_need_no_validation_set(clients: list[Upload]) -> None:
    for name in ("fedavg", "fisher_merge", "ensemble", "local_mean", "ma_echo", "ma_echo_official", "ma_echo_ot"):
        aggregate(name, clients, validation=empty())
    aggregate("regmean", clients, validation=empty(), off_diagonal=[0.9])


def test_factored_damping_goes_from_the_fishers_to_the_mean() -> None:
    uploads = trained_uploads()
    mean = mean_parameters(uploads)
    plain = aggregate("fedfisher_kfac", uploads).networks[0]
    distances = []
    for damping in (0.0, 1e-3, 1.0, 1e6):
        (network,) = aggregate("fedfisher_kfac", uploads, factored_damping=damping).networks
        distances.append(sum((network[name] - mean[name]).square().sum().item() for name in mean))
        assert all(torch.equal(network[name], plain[name]) for name in mean) == (damping == 0)
    assert distances[-1] < 1e-6 < distances[0]


def test_of_two_in_the_middle_the_smaller_is_the_median() -> None:
    models = [{"w": torch.tensor([float(one)])} for one in (4, 1, 3, 2)]
    assert median_parameters(models)["w"].item() == 2.0
    assert median_parameters(models[:3])["w"].item() == 3.0


def test_the_client_that_counts_least_is_known() -> None:
    uploads = made_up_uploads([tiny.initial(tiny.TINY, seed=seed) for seed in range(3)], tiny.TINY)
    traces = []
    for one in uploads:
        blocks = [torch.kron(factor.inputs, factor.outputs) for factor in one[KFAC].factors.values()]
        traces.append(one.num_examples * sum(block.trace().item() for block in blocks))
    found = aggregate("fedfisher_kfac", uploads).details["least_trace"]
    assert found == pytest.approx(min(traces) / (sum(traces) / 3), rel=1e-5)
    assert 0 < found < 1


def with_factors(upload: Upload, times: float) -> Upload:
    factors = {name: block.times(times) for name, block in upload[KFAC].factors.items()}
    return Upload(upload.num_examples, {Weights: upload[Weights], KFAC: KFAC(factors)})


@pytest.mark.parametrize("floor", [0.5, 1.0])
def test_a_client_that_is_sure_is_heard_with_a_floor_under_its_trace(floor: float) -> None:
    uploads = made_up_uploads([tiny.initial(seed=seed) for seed in range(3)])
    hushed = [with_factors(upload, 1e-6 if client == 1 else 1.0) for client, upload in enumerate(uploads)]
    (found,) = aggregate("fedfisher_kfac", hushed, trace_floor=floor).networks
    traces = [sum(block.trace for block in upload[KFAC].factors.values()) for upload in hushed]
    least = floor * float(P @ np.array(traces))
    by_hand = [with_factors(upload, max(1.0, least / trace)) for upload, trace in zip(hushed, traces, strict=True)]
    (expected,) = aggregate("fedfisher_kfac", by_hand).networks
    (plain,) = aggregate("fedfisher_kfac", hushed).networks
    for name, tensor in expected.items():
        assert torch.allclose(found[name], tensor, atol=1e-5), name
    assert not all(torch.allclose(plain[name], tensor, atol=1e-2) for name, tensor in expected.items())


def test_a_floor_raises_no_fisher_of_zeros() -> None:
    uploads = [with_factors(upload, 0.0) for upload in made_up_uploads([tiny.initial(seed=seed) for seed in range(3)])]
    found, expected = (aggregate("fedfisher_kfac", uploads, trace_floor=floor).networks[0] for floor in (1.0, 0.0))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ties", {}),
        ("ties", {"scale": [0.3]}),
        ("dare", {"drop": 0.5}),
        ("gradient_matching", {}),
        ("iso_c", {"scale": [0.3]}),
        ("tsv_m", {"scale": [0.3]}),
    ],
)
def test_running_statistics_become_their_mean(name: str, settings: dict[str, Any]) -> None:
    clients = [tiny.initial(BATCH_NORM, seed=seed) for seed in range(1, 4)]
    for seed, one in enumerate(clients):
        one["norm.mean"] = torch.tensor([1.0, -2.0, 0.5]) * (1 + seed)
        one["norm.log_variance"] = torch.tensor([-3.0, 0.0, 2.0]) + seed
    # A channel that is dead at all clients has no Fisher.
    fishers = [DiagonalFisher({key: torch.zeros_like(tensor) for key, tensor in one.items()}) for one in clients]
    uploads = [
        Upload(10, {Weights: Weights(one), DiagonalFisher: fisher})
        for one, fisher in zip(clients, fishers, strict=True)
    ]
    (network,) = aggregate(name, uploads, spec=BATCH_NORM, **settings).networks
    for key in ("norm.mean", "norm.log_variance"):
        assert torch.allclose(network[key], torch.stack([one[key] for one in clients]).mean(0), atol=1e-5), key
