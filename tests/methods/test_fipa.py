from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch import Tensor

from fedfisher.client import Client
from fedfisher_core.client.statistics.configured import configure_statistics
from fedfisher_core.client.statistics.fisher_directions import FisherDirections
from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload, upload_schema
from fedfisher_core.communication.wire.budget import fedavg_bits
from fedfisher_core.communication.wire.payload import HEADER_BITS
from fedfisher_core.engine.errors import InputError
from fedfisher_core.fisher.products import flat
from fedfisher_core.settings import WireSettings
from tests import tiny
from tests.methods.clients import SIZES, bind_written, server

SPEC = tiny.LINEAR_WITH_BIAS
START = tiny.initial(SPEC)
SIZE = flat(START.values()).numel()
# Single precision is that of weights and of what is sent.
CLOSE = 2e-5


def client(change: Tensor, directions: Tensor, *, examples: int = 10) -> Upload:
    """Went from the start by a change, shape (d,), and has directions, shape (r, d)."""
    parts = (flat(START.values()) + change).split([tensor.numel() for tensor in START.values()])
    weights = {name: part.reshape(START[name].shape) for name, part in zip(START, parts, strict=True)}
    statistics: dict[type[Statistic], Statistic] = {
        Weights: Weights(weights),
        FisherDirections: FisherDirections({"directions": directions}),
    }
    return Upload(num_examples=examples, statistics=statistics)


def change_of(uploads: list[Upload], **settings: object) -> Tensor:
    """How far FIPA goes from the start, shape (d,)."""
    (network,) = bind_written("fipa", settings, [SPEC])(server(SPEC, initial=START), uploads).networks
    return flat(network.values()) - flat(START.values())


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def real_clients(rank: int) -> list[Upload]:
    """Clients of examples of their own, whose changes are drawn, and whose Fishers are those of the start."""
    found = []
    for seed, number in enumerate(SIZES):
        local = replace(tiny.local(SPEC.load(START), tiny.examples(number, seed=seed, spec=SPEC)), initial=START)
        directions = FisherDirections.compute(local, rank=rank).tensors["directions"]
        found.append(client(drawn(SIZE, seed=seed), directions, examples=number))
    return found


def dense_solve(uploads: list[Upload], cutoff: float) -> Tensor:
    """H^+ sum_i p_i F_i tau_i with whole matrices in double precision."""
    total = sum(upload.num_examples for upload in uploads)
    matrix, right = torch.zeros(SIZE, SIZE, dtype=torch.float64), torch.zeros(SIZE, dtype=torch.float64)
    for upload in uploads:
        directions = upload[FisherDirections].tensors["directions"].double()
        fisher = upload.num_examples / total * directions.T @ directions
        matrix += fisher
        right += fisher @ (flat(upload[Weights].tensors.values()) - flat(START.values())).double()
    return torch.linalg.pinv(matrix, hermitian=True, rtol=cutoff) @ right


@pytest.mark.parametrize("rank", [2, 10, SIZE])
def test_it_is_the_solution_with_whole_matrices(rank: int) -> None:
    uploads = real_clients(rank)
    expected = dense_solve(uploads, 1e-4)
    found = change_of(uploads, cutoff=1e-4)
    assert expected.norm() > 0.1
    assert (found.double() - expected).norm() < 1e-4 * expected.norm()


def test_one_client_with_all_directions_keeps_its_model() -> None:
    change = drawn(SIZE)
    assert torch.allclose(change_of([client(change, drawn(SIZE, SIZE, seed=1))], cutoff=0), change, atol=1e-3)
    orthonormal = torch.linalg.qr(drawn(SIZE, SIZE, seed=1)).Q
    assert torch.allclose(change_of([client(change, orthonormal)]), change, atol=CLOSE)


@pytest.mark.parametrize("elsewhere", ["start", "mean"])
def test_equal_clients_agree_on_what_they_have_directions_for(elsewhere: str) -> None:
    change, directions = drawn(SIZE), drawn(3, SIZE, seed=1)
    found = change_of([client(change, directions)] * 3, elsewhere=elsewhere)
    basis = torch.linalg.qr(directions.T).Q
    inside = basis @ (basis.T @ change)
    assert torch.allclose(found, inside if elsewhere == "start" else change, atol=CLOSE)


@pytest.mark.parametrize("examples", [(10, 10), (90, 10)])
def test_clients_with_other_directions_add_their_updates(examples: tuple[int, int]) -> None:
    one, other = torch.zeros(2, SIZE), torch.zeros(2, SIZE)
    one[0, 0], one[1, 1], other[0, 2], other[1, 3] = 3.0, 0.5, 0.1, 2.0
    changes = drawn(2, SIZE)
    uploads = [client(changes[0], one, examples=examples[0]), client(changes[1], other, examples=examples[1])]
    expected = torch.zeros(SIZE)
    expected[:2], expected[2:4] = changes[0, :2], changes[1, 2:4]
    assert torch.allclose(change_of(uploads), expected, atol=CLOSE)
    mean = (examples[0] * changes[0] + examples[1] * changes[1]) / sum(examples)
    expected[4:] = mean[4:]
    assert torch.allclose(change_of(uploads, elsewhere="mean"), expected, atol=CLOSE)


def test_a_direction_of_both_takes_the_mean_by_fishers_and_examples() -> None:
    one, other = torch.zeros(1, SIZE), torch.zeros(1, SIZE)
    one[0, 0], other[0, 0] = 2.0, 1.0
    changes = torch.zeros(2, SIZE)
    changes[0, 0], changes[1, 0] = 1.0, -1.0
    found = change_of([client(changes[0], one, examples=10), client(changes[1], other, examples=30)])
    # Weights 10 * 4 and 30 * 1.
    assert found[0].item() == pytest.approx((40 - 30) / 70, abs=CLOSE)
    assert found[1:].abs().max() < CLOSE


def test_the_order_of_clients_does_not_count() -> None:
    uploads = real_clients(4)
    assert torch.allclose(change_of(uploads), change_of(uploads[::-1]), atol=CLOSE)


def test_directions_below_the_cutoff_do_not_count() -> None:
    directions = torch.zeros(2, SIZE)
    directions[0, 0], directions[1, 1] = 1.0, 0.1
    uploads = [client(torch.ones(SIZE), directions)]
    assert change_of(uploads, cutoff=0.005)[:2].tolist() == pytest.approx([1, 1], abs=CLOSE)
    assert change_of(uploads, cutoff=0.02)[:2].tolist() == pytest.approx([1, 0], abs=CLOSE)


def test_without_any_direction_nothing_moves() -> None:
    assert change_of([client(drawn(SIZE), torch.zeros(2, SIZE))] * 2).abs().max() == 0


def test_the_rank_bounds_the_bits() -> None:
    for rank, kept in ((1, 1), (7, 7), (SIZE + 3, SIZE)):
        uploads = configure_statistics([Weights, FisherDirections], {"fisher_directions": {"rank": rank}})
        schema = upload_schema(uploads, SPEC, WireSettings(budget="none"))
        assert schema.bits == HEADER_BITS + 32 * SIZE * (1 + kept)
        within = upload_schema(uploads, SPEC, WireSettings(budget="fedavg"))
        assert within.bits <= fedavg_bits(SIZE)


@pytest.mark.parametrize(("labels", "estimator"), [("model", "exact"), ("examples", "empirical")])
def test_the_fisher_is_that_of_the_start(labels: Literal["model", "examples"], estimator: str) -> None:
    # The trained network differs, and does not count.
    examples = tiny.examples(20, spec=SPEC)
    trained = tiny.local(SPEC.load(tiny.initial(SPEC, seed=5)), examples)
    started = tiny.local(SPEC.load(START), examples, estimator=estimator)
    local = replace(trained, initial=START)
    directions = FisherDirections.compute(local, rank=SIZE, labels=labels).tensors["directions"]
    whole = started.fisher.dense
    assert whole is not None
    # The whole Fisher orders weights as the network does.
    assert torch.allclose(directions.T @ directions, whole, atol=1e-5 * float(whole.abs().max()))


@pytest.mark.parametrize("rank", [0, 10_001])
def test_other_ranks_are_refused(rank: int) -> None:
    with pytest.raises(InputError, match=rf"statistics\.fisher_directions\.rank={rank}"):
        configure_statistics([FisherDirections], {"fisher_directions": {"rank": rank}})


@pytest.mark.parametrize(("key", "value"), [("cutoff", -1), ("cutoff", 1), ("elsewhere", "end")])
def test_other_settings_are_refused(key: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"methods\.fipa\.{key}={value!r}"):
        bind_written("fipa", {key: value}, [SPEC])


def test_a_start_that_is_not_known_is_named() -> None:
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 3))
    held = Client(network, (tiny.examples(9).inputs, tiny.examples(9).labels))
    with pytest.raises(InputError, match=r"needs .* of the network that the training started from; allowed: Client"):
        held.upload("fipa")


def test_the_order_in_which_weights_are_stored_does_not_count() -> None:
    uploads = real_clients(rank=3)
    backwards = [
        replace(one, statistics={**one.statistics, Weights: Weights(dict(reversed(one[Weights].tensors.items())))})
        for one in uploads
    ]
    run = bind_written("fipa", {}, [SPEC])
    (expected,) = run(server(SPEC, initial=START), uploads).networks
    (found,) = run(server(SPEC, initial=dict(reversed(START.items()))), backwards).networks
    assert all(torch.equal(found[name], expected[name]) for name in START)


def test_directions_that_clients_share_count_once_without_a_cutoff() -> None:
    shared = drawn(3, SIZE)
    uploads = [client(drawn(SIZE, seed=seed), shared) for seed in (1, 2)]
    (exact,) = bind_written("fipa", {"cutoff": 0.0}, [SPEC])(server(SPEC, initial=START), uploads).networks
    (cut,) = bind_written("fipa", {}, [SPEC])(server(SPEC, initial=START), uploads).networks
    assert all(torch.allclose(exact[name], cut[name], atol=CLOSE) for name in START)
