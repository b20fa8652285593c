"""Adapters of several ranks: a client trains, computes and sends what a network of its own rank would."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.training import train
from fedfisher_core.client.uploads import Upload, decode
from fedfisher_core.communication.wire.budget import fedavg_bits
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.seeds import Stream
from fedfisher_core.engine.store import read_tensors
from fedfisher_core.federation.aggregation import expected_uploads
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.federation import PartitionInputs
from fedfisher_core.federation.global_models import NETWORK
from fedfisher_core.federation.partition import examples_of
from fedfisher_core.federation.start import load_start
from fedfisher_core.federation.uploads import PAYLOAD, TENSORS, schema_of
from fedfisher_core.models.spec import ModelSpec, Parameters
from tests import tiny
from tests.walked import Walked, walk_tiny

MODEL = {"name": "adapted", "lora": {"rank": 2, "ranks": [1, 2]}}
PLAIN = {"budget": "none", "format": "float32"}
NARROW = replace(tiny.ADAPTED, widths=(1,))
A, B = "lora_A.weight", "lora_B.weight"
SMALL, WHOLE = 0, 1
"""A client of rank 1, and one of the server's rank; client 2 has rank 1 again."""


METHODS = ("fedavg", "flexlora", "fedex_lora", "regmean", "fedfisher_diag", "fedfisher_kfac")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Iterator[Walked]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDFISHER_DATA_DIR", str(tiny_folder))
        folder, methods = tmp_path_factory.mktemp("ranks"), {name: {} for name in METHODS}
        yield walk_tiny(folder, methods, model=MODEL, wire=PLAIN)


def trained(done: Walked, client: int) -> Parameters:
    job = done.plan.federations.training(done.federation, client)
    return read_tensors(done.made(job), TENSORS)


def payload(done: Walked, client: int, method: str) -> bytes:
    configured = done.plan.federations.methods[method]
    return (done.made(done.plan.federations.sending(done.federation, client, configured)).path / PAYLOAD).read_bytes()


def sent(done: Walked, client: int, method: str, spec: ModelSpec) -> Upload:
    configured = done.plan.federations.methods[method]
    schema = schema_of(configured, spec)
    return decode(payload(done, client, method), schema, configured.method.uploads, torch.device("cpu"))


def narrow(weights: Parameters) -> Parameters:
    return {name: tensor.clone() for name, tensor in weights.items()} | {A: weights[A][:1], B: weights[B][:, :1]}


def local_of(done: Walked, client: int, weights: Parameters, spec: ModelSpec) -> Local:
    """The client with a network of its own rank."""
    federation, inputs = done.federation, PartitionInputs(done.data, done.partition)
    job = done.plan.federations.training(federation, client)
    return Local(
        network=spec.load(weights).eval(),
        initial=weights,
        examples=examples_of(federation, inputs, client),
        classes=tiny.CLASSES,
        batch_size=federation.train.batch_size,
        settings=federation.fisher,
        approximations=frozenset({KFAC.approximation}),
        generator=job.generator(Stream.FISHER),
    )


def test_a_client_trains_what_a_network_of_its_rank_would(done: Walked) -> None:
    federations, federation = done.plan.federations, done.federation
    start = load_start(done.made(federations.start(federation, SMALL)), torch.device("cpu"))
    local = local_of(done, SMALL, narrow(start), NARROW)
    generator = federations.training(federation, SMALL).generator(Stream.CLIENT)
    alone = train(local.network, local.examples, federation.train, generator=generator).parameters
    found = trained(done, SMALL)
    for name, tensor in alone.items():
        torch.testing.assert_close(narrow(found)[name], tensor)
        assert not torch.equal(tensor, narrow(start)[name])
    assert not found[A][1:].any()
    assert not found[B][:, 1:].any()
    assert trained(done, WHOLE)[A].any(dim=1).all()


def test_its_upload_takes_the_bits_of_a_network_of_its_rank(done: Walked) -> None:
    small, whole = (sum(one.numel() for one in spec.shapes().values()) for spec in (NARROW, tiny.ADAPTED))
    assert small < whole
    sizes = [8 * len(payload(done, client, "fedavg")) for client in range(3)]
    assert sizes == [fedavg_bits(small), fedavg_bits(whole), fedavg_bits(small)]
    assert done.rows["fedavg"].upload_bits == sum(sizes)
    expected = expected_uploads([done.plan.federations.aggregation(done.federation, "fedavg")])
    assert (expected.count, expected.bits, expected.largest) == (3, sum(sizes), max(sizes))
    torch.testing.assert_close(sent(done, SMALL, "fedavg", NARROW)[Weights].tensors, narrow(trained(done, SMALL)))


def test_its_statistics_are_those_of_a_network_of_its_rank(done: Walked) -> None:
    own = local_of(done, SMALL, narrow(trained(done, SMALL)), NARROW)
    torch.testing.assert_close(
        sent(done, SMALL, "fedfisher_kfac", NARROW)[KFAC].tensors, KFAC.compute(own).tensors, atol=1e-6, rtol=1e-4
    )


def test_the_server_adds_products_of_all_ranks(done: Walked) -> None:
    uploads = [sent(done, one, "flexlora", (NARROW, tiny.ADAPTED, NARROW)[one]) for one in range(3)]
    total = sum(one.num_examples for one in uploads)
    mean: Tensor = sum(  # type: ignore[assignment]
        one.num_examples / total * one[Weights].tensors[B] @ one[Weights].tensors[A] for one in uploads
    )
    left, values, right = torch.linalg.svd(mean)
    nearest = left[:, :2] * values[:2] @ right[:2]
    made = read_tensors(done.aggregate("flexlora"), NETWORK.format(0))
    torch.testing.assert_close(made[B] @ made[A], nearest)


def test_means_of_factors_count_what_is_missing_as_zero(done: Walked) -> None:
    uploads = [sent(done, one, "fedavg", (NARROW, tiny.ADAPTED, NARROW)[one]) for one in range(3)]
    part = uploads[WHOLE].num_examples / sum(one.num_examples for one in uploads)
    made = read_tensors(done.aggregate("fedavg"), NETWORK.format(0))
    torch.testing.assert_close(made[A][1], part * uploads[WHOLE][Weights].tensors[A][1])


def test_the_exact_mean_of_products_has_the_sum_of_the_clients_ranks(done: Walked) -> None:
    uploads = [sent(done, one, "fedex_lora", (NARROW, tiny.ADAPTED, NARROW)[one]) for one in range(3)]
    total = sum(one.num_examples for one in uploads)
    made = read_tensors(done.aggregate("fedex_lora"), NETWORK.format(0))
    assert made[A].shape[0] == 1 + 2 + 1
    mean = sum(one.num_examples / total * one[Weights].tensors[B] @ one[Weights].tensors[A] for one in uploads)
    torch.testing.assert_close(made[B] @ made[A], mean)


def test_regmean_counts_missing_rows_of_a_as_zeros_and_leaves_them_out_of_b(done: Walked) -> None:
    whole, made = trained(done, WHOLE), read_tensors(done.aggregate("regmean"), NETWORK.format(0))
    torch.testing.assert_close(made[B][:, 1], whole[B][:, 1], atol=0.01, rtol=0.05)
    assert made[A][1].norm() < 0.5 * whole[A][1].norm()


def test_fishers_give_what_is_missing_no_weight(done: Walked) -> None:
    whole = trained(done, WHOLE)
    made = read_tensors(done.aggregate("fedfisher_diag"), NETWORK.format(0))
    # The client alone has information on its second row, which is therefore the solution.
    torch.testing.assert_close(made[A][1], whole[A][1], atol=1e-4, rtol=1e-2)


def test_one_rank_for_all_is_what_no_ranks_are(workplace: Path) -> None:
    plain = {"name": "adapted", "lora": {"rank": 2}}
    first = walk_tiny(workplace, {"flexlora": {}}, model=plain)
    again = walk_tiny(workplace, {"flexlora": {}}, model={"name": "adapted", "lora": {"rank": 2, "ranks": [2]}})
    assert first.aggregate("flexlora") == again.aggregate("flexlora")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"model": {"name": "adapted", "lora": {"ranks": [4, 16]}}},
            r"ranks=\[4, 16\] exceed rank=8; allowed: up to it",
        ),
        ({"model": {"name": "adapted", "lora": {"ranks": [4], "trained": "b"}}}, r"ranks=\[4\] with trained='b'"),
        (
            {"model": {"name": ["adapted", "tiny"], "lora": {"rank": 2, "ranks": [1]}}},
            r"ranks=\[1\]: model 'tiny' has no adapters; allowed",
        ),
        (
            {"model": MODEL, "partition": {"clients": [3, 1]}},
            r"has more ranks than clients take part, 1; allowed",
        ),
        ({"model": MODEL, "rounds": {"count": 2}}, r"ranks=\[1, 2\] with rounds.count=2; allowed: one round"),
        ({"model": MODEL, "train": {"together": 2}}, r"train.together=2 with model.lora.ranks"),
        ({"model": MODEL, "privacy": {"epsilon": 8, "delta": 1e-3}}, r"ranks=\[1, 2\] with privacy, whose"),
        ({"model": {"name": "adapted", "lora": {"ranks": [4]}}}, r"model 'adapted' of rank 4 is not smaller than the"),
        (
            {"model": MODEL, "rounds": {"server_optimiser": "fedadam"}},
            r"server_optimiser='fedadam', which steps from",
        ),
        (
            {"model": MODEL, "train": {"objective": "scaffold", "momentum": 0}},
            r"train.objective='scaffold', which sends reports",
        ),
        (
            {"model": MODEL, "methods": {"regmean_plus_plus": {}}},
            r"'regmean_plus_plus', which asks clients again",
        ),
        ({"model": MODEL, "methods": {"ties": {}}}, r"method 'ties', which merges what training changed of weights"),
        (
            {"model": MODEL, "methods": {"ma_echo": {}}},
            r"method 'ma_echo', whose .null_space_projection. depends on the rank",
        ),
        ({"model": MODEL, "methods": {"fedfisher_full": {}}}, r"'fedfisher_full', whose 'dense_fisher' depends on the"),
        (
            {"model": MODEL, "methods": {"fedavg": {"wire": {"budget": "none", "server_view": "secure_sum"}}}},
            r"method 'fedavg': secure sums are of numbers of one shape; allowed: wire.server_view=declared",
        ),
    ],
)
def test_ranks_that_cannot_be_are_refused(workplace: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_federations(tiny.tiny_settings(workplace, **changes))
