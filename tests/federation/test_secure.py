"""Secure aggregation of the embedded digits, by settings, against what the server makes of every client's upload."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.communication.secure.fixed_point import FixedPoint
from fedfisher_core.communication.secure.protocol import Collected
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.performing import execute
from fedfisher_core.engine.store import Artifact, open_store, read_tensors
from fedfisher_core.experiments.benchmark.plan import make_plan
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.global_models import read_result
from fedfisher_core.federation.partition import label_counts
from fedfisher_core.federation.secure import COARSE, coarsest, collect_securely
from fedfisher_core.federation.uploads import TENSORS
from fedfisher_core.settings import WireSettings
from fedfisher_core.settings.reading import validate
from tests import tiny
from tests.methods.clients import bind_written
from tests.walked import Walked, walk_clients

CLIENTS = 5
SECURE = {"budget": "none", "server_view": "secure_sum"}
PLAIN = {"budget": "none", "format": "float32"}
DROPOUTS = {1: "shares", 3: "upload"}
SURVIVORS = (0, 2, 4)


EVERYONE = tuple(range(CLIENTS))
LABEL = "mine"


class Trained:
    """Five clients of the compact network, trained for one epoch each; all aggregations share a store."""

    def __init__(self, store: Path) -> None:
        self._store = store
        done = walk_clients(self._settings({name: {} for name in ("fedavg", "fedfisher_diag", "fedfish")}))
        self.counts = [sum(one) for one in label_counts(done.partition)]
        self.clients = [done.client(client, "fedfisher_diag") for client in EVERYONE]

    def _settings(self, methods: Mapping[str, Mapping[str, Any]]) -> BenchmarkSettings:
        content = {
            "seeds": 0,
            "data": {"dataset": "mnist5k", "validation_size": 200},
            "partition": {"alpha": 0.5, "clients": CLIENTS},
            "model": {"name": "compact"},
            "train": {"epochs": 1},
            "methods": methods,
            "run": {"device": "cpu", "store": str(self._store)},
        }
        return validate(BenchmarkSettings, content)

    def walk(self, name: str, wire: Mapping[str, Any], clients: tuple[int, ...] = EVERYONE, **settings: Any) -> Walked:
        """Aggregate the uploads of some clients."""
        plan = make_plan(self._settings({LABEL: {"method": name, "wire": wire, **settings}}))
        (federation,) = plan.federations.all
        job = plan.federations.aggregation(federation, LABEL)
        left = {client: job.needs.clients[client] for client in clients}
        chosen: Any = replace(job, needs=replace(job.needs, clients=left))
        # What measures the network is made anew, after the aggregation of these clients.
        made = plan.federations._made
        made |= {key: chosen for key, one in made.items() if one is job}
        for key in [key for key in made if key[0] == "testing"]:
            del made[key]
        store = open_store(self._store)
        return Walked(plan, execute(plan.federations.jobs(), store), store)

    def run(self, name: str, wire: Mapping[str, Any], clients: tuple[int, ...] = EVERYONE, **settings: Any) -> Artifact:
        """The global model of some clients' uploads."""
        return self.walk(name, wire, clients, **settings).aggregate(LABEL)

    def tensors(self, client: int, statistic: str) -> dict[str, Tensor]:
        stored = read_tensors(self.clients[client][statistic], TENSORS)
        return {name: self.counts[client] * tensor.double() for name, tensor in stored.items()}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    torch.set_num_threads(1)
    return Trained(tmp_path_factory.mktemp("store") / "artifacts")


def network(artifact: Artifact) -> dict[str, Tensor]:
    return read_tensors(artifact, "network_0.safetensors")


@pytest.mark.drawn(6)
@pytest.mark.parametrize(
    ("dropouts", "summed"),
    [({}, (0, 1, 2, 3, 4)), (DROPOUTS, SURVIVORS), ({0: "unmasking", 4: "unmasking"}, (0, 1, 2, 3, 4))],
    ids=["all", "three", "late"],
)
@pytest.mark.parametrize("name", ["fedavg", "fedfisher_diag", "fisher_merge", "fedfish", "iso_c", "gradient_matching"])
def test_a_secure_sum_gives_the_network_of_the_clients_in_it(
    name: str, dropouts: dict[int, str], summed: tuple[int, ...], trained: Trained
) -> None:
    walks = trained.walk(name, SECURE | {"secure": {"dropouts": dropouts}}), trained.walk(name, PLAIN, summed)
    secure, plain = (walk.aggregate(LABEL) for walk in walks)
    for key, tensor in network(plain).items():
        # What float32 rounds is larger than the steps of 64 bits.
        torch.testing.assert_close(network(secure)[key], tensor, rtol=1e-5, atol=2e-6)
    assert read_result(secure).details["clients_in_sum"] == len(summed)
    accuracies = [walk.measures(LABEL).accuracy for walk in walks]
    assert accuracies[0] == pytest.approx(accuracies[1], abs=0.002)
    if dropouts == DROPOUTS:
        everyone = network(trained.run(name, PLAIN))
        assert any((network(secure)[key] - tensor).abs().max() > 1e-3 for key, tensor in everyone.items())


def test_moments_in_a_secure_sum_train_the_same_network(trained: Trained) -> None:
    secure, plain = (
        network(trained.run("summed_moments", wire, clients, steps=30))
        for wire, clients in ((SECURE | {"secure": {"dropouts": DROPOUTS}}, EVERYONE), (PLAIN, SURVIVORS))
    )
    for key, tensor in plain.items():
        # Thirty steps of Adam enlarge what rounding moves.
        torch.testing.assert_close(secure[key], tensor, rtol=1e-3, atol=1e-3)


# Of five clients with at most 1,024 examples, and numbers up to 4: three uploads, each off by half a step at most.
NARROW = {"clip": 4.0, "most_examples": 1024}


def bound_of(bits: int) -> float:
    return len(SURVIVORS) / 2 * 4.0 * 1024 / 2.0 ** (bits - 1 - CLIENTS.bit_length())


@pytest.mark.parametrize("bits", [32, 64])
def test_networks_differ_by_no_more_than_the_quantisation_steps(bits: int, trained: Trained) -> None:
    wire = SECURE | {"secure": {"bits": bits, "dropouts": DROPOUTS, **NARROW}}
    bound = bound_of(bits)
    averaged = network(trained.run("fedavg", wire))
    weighted = network(trained.run("fedfisher_diag", wire))
    total = sum(trained.counts[client] for client in SURVIVORS)
    everyone = range(CLIENTS)
    for key in averaged:
        weights = [trained.tensors(client, "weights")[key] for client in everyone]
        fishers = [trained.tensors(client, "diagonal_fisher")[key] for client in everyone]
        products = [
            fisher * weight / count for fisher, weight, count in zip(fishers, weights, trained.counts, strict=True)
        ]
        mean = sum(weights[client] for client in SURVIVORS) / total
        rounding = 1e-6 * (mean.abs() + 1)
        assert ((averaged[key] - mean).abs() <= bound / total + rounding).all()

        fisher, product = (sum(one[client] for client in SURVIVORS) for one in (fishers, products))
        known = fisher > 1024 * bound
        quotient = torch.where(known, product / fisher, mean)
        errors = (bound + quotient.abs() * bound) / fisher
        allowed = torch.where(known, 1.01 * errors, bound / total) + rounding
        # The server knows the Fisher up to rounding, so that those at the border may fall to either side.
        border = (fisher / bound - 1024).abs() < 2
        assert (((weighted[key] - quotient).abs() <= allowed) | border).all()
        assert ((fisher > 0) & ~known).double().mean() < 0.01


def test_what_counts_once_for_each_client_needs_no_room_for_its_examples(trained: Trained) -> None:
    # With room for 2**17 examples, 32 bits would round weights to eighths.
    secure, plain = (network(trained.run("iso_c", wire)) for wire in (SECURE | {"secure": {"bits": 32}}, PLAIN))
    for key, tensor in plain.items():
        torch.testing.assert_close(secure[key], tensor, rtol=1e-3, atol=1e-4)


def test_every_solver_of_the_objective_works_on_sums(trained: Trained) -> None:
    for solver in ("conjugate_gradients", "gradient_descent"):
        secure, plain = (
            trained.walk("fedfisher_diag", wire, solver={"name": solver, "steps": 20}) for wire in (SECURE, PLAIN)
        )
        reached, wanted = (read_result(walk.aggregate(LABEL)).details["objective"] for walk in (secure, plain))
        assert reached == pytest.approx(wanted, rel=1e-3)
        assert secure.measures(LABEL).loss == pytest.approx(plain.measures(LABEL).loss, rel=1e-3)


@pytest.mark.parametrize(
    ("bits", "adversary"), [(32, "honest_but_curious"), (64, "honest_but_curious"), (64, "active")]
)
def test_bits_are_those_of_all_messages(bits: int, adversary: str, trained: Trained) -> None:
    secure = {"bits": bits, "adversary": adversary, "threshold": 3, "dropouts": DROPOUTS}
    done = trained.walk("fedavg", SECURE | {"secure": secure})
    row = done.rows[LABEL]
    tensors = network(done.aggregate(LABEL)).values()
    parameters = sum(tensor.numel() for tensor in tensors)
    # With the weights go two numbers: how many examples there are, and how many numbers were cut off.
    vectors = 3 * bits * (parameters + 2)
    signature = 64 if adversary == "active" else 0
    # Two keys; shares for four others; signatures of the survivors; a share of each of four clients.
    keys, shares, answers = 5 * (64 + signature), 4 * 4 * (33 + 33 + 16), 3 * 4 * 33
    assert row.upload_bits == 8 * (keys + shares + 3 * signature + answers) + vectors
    # Papers do not count the tags of what is sealed.
    assert row.upload_bits_formula == row.upload_bits - 8 * 4 * 4 * 16
    # A seed and the global model for everyone; everyone's keys; shares; who uploaded; who signed. A list is a byte.
    model = 5 * (64 + 256 + 32 * parameters)
    confirmed = 3 * (3 * signature + 1) if signature else 0
    messages = 5 * (5 * (64 + signature) + 1) + 4 * (3 * (33 + 33 + 16) + 1) + 3 * 1 + confirmed
    assert row.download_bits == model + 8 * messages
    assert row.start_sent == "seed"
    assert row.method_settings["wire"]["secure"] == {
        "adversary": adversary,
        "bits": bits,
        "clip": 256.0,
        "most_examples": 131072,
        "threshold": 3,
        "dropouts": {"1": "shares", "3": "upload"},
    }


def test_dropouts_belong_to_the_key_of_the_result(trained: Trained) -> None:
    keys = {
        trained.run("fedavg", wire).key
        for wire in (
            PLAIN,
            SECURE,
            SECURE | {"secure": {"dropouts": {1: "upload"}}},
            SECURE | {"secure": {"bits": 32}},
            SECURE | {"secure": {"adversary": "active"}},
        )
    }
    assert len(keys) == 5


def test_signatures_change_nothing_of_the_network(trained: Trained) -> None:
    dropouts = {1: "upload", 3: "consistency"}
    signed = {"adversary": "active", "threshold": 3, "dropouts": dropouts}
    plain = {"dropouts": dropouts | {3: "unmasking"}}
    one, two = (trained.run("fedfisher_diag", SECURE | {"secure": secure}) for secure in (signed, plain))
    assert all(torch.equal(tensor, network(two)[key]) for key, tensor in network(one).items())
    assert read_result(one).details == read_result(two).details


def test_an_active_server_needs_more_than_two_thirds_of_the_clients_to_stay(trained: Trained) -> None:
    dropouts = {0: "upload", 1: "upload"}
    assert (
        read_result(trained.run("fedavg", SECURE | {"secure": {"dropouts": dropouts}})).details["clients_in_sum"] == 3
    )
    with pytest.raises(InputError, match=r"3 of 5 clients.*threshold=4"):
        trained.run("fedavg", SECURE | {"secure": {"adversary": "active", "dropouts": dropouts}})
    with pytest.raises(InputError, match=r"threshold=2 is at most half of 5 clients; allowed with .*'active': 3"):
        trained.run("fedavg", SECURE | {"secure": {"adversary": "active", "threshold": 2}})


def test_what_is_cut_off_is_warned_of(trained: Trained, caplog: pytest.LogCaptureFixture) -> None:
    wide = read_result(trained.run("fedfisher_diag", SECURE)).details
    assert not caplog.records
    tight = read_result(trained.run("fedfisher_diag", SECURE | {"secure": {"clip": 2.0**-10}})).details
    assert wide["clipped_fraction"] == 0
    assert 0 < tight["clipped_fraction"] < 1
    (said,) = [record.getMessage() for record in caplog.records if "cut off" in record.getMessage()]
    assert f"wire.secure.clip=0.000976562 cut off {tight['clipped_fraction']:.2g} of the numbers" in said


def coarse_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "rounding to" in record.getMessage()]


@pytest.mark.parametrize("method", ["fedavg", "fedfisher_diag"])
def test_coarse_sums_are_warned_of(trained: Trained, caplog: pytest.LogCaptureFixture, method: str) -> None:
    fine = read_result(trained.run(method, SECURE)).details["rounding"]
    narrow = {"bits": 32, "clip": 1.0, "most_examples": 1024} if method == "fedfisher_diag" else {"bits": 32}
    narrower = read_result(trained.run(method, SECURE | {"secure": narrow})).details["rounding"]
    assert 0 < fine < narrower < COARSE
    assert not coarse_warnings(caplog)
    # By default, Fishers' entries are small compared with what is made room for.
    wide = {"bits": 32} if method == "fedfisher_diag" else {"bits": 32, "clip": 2.0**20}
    coarse = read_result(trained.run(method, SECURE | {"secure": wide})).details["rounding"]
    assert COARSE < coarse <= 1
    (said,) = coarse_warnings(caplog)
    assert re.search(r"rounding to wire\.secure\.bits=32 puts the secure sum of \w+/[\w.]+ off by [\d.]+ of its", said)
    assert "\n" not in said


def test_rounding_is_found_where_it_is_worst() -> None:
    """Against the errors that rounding really makes."""
    rng, clients = np.random.default_rng(0), 7
    sizes = {"a/large": 30.0, "a/small": 0.3, "b/medium": 3.0}
    code = FixedPoint({name: (20_000,) for name in sizes}, (20, 20, 20), clients=clients, bits=32)
    each = [{name: rng.normal(0, size, 20_000) for name, size in sizes.items()} for _ in range(clients)]
    sums = code.decode(np.sum([code.encode(one) for one in each], axis=0, dtype=np.uint32))
    name, part = coarsest(sums, code.steps(), clients)
    exact = np.sum([one["a/small"] for one in each], axis=0)
    error = sums["a/small"] - exact
    assert name == "a/small"
    assert part == pytest.approx(np.sqrt(np.mean(error**2) / np.mean(exact**2)), rel=0.05)


def test_a_sum_of_zeros_is_lost_unless_its_step_is_beyond_single_precision() -> None:
    found = {}
    for bits in (32, 64):
        code = FixedPoint({"a/zero": (2,), "a/one": (2,)}, (20, 20), clients=3, bits=bits)
        sums = {"num_examples": np.array(0.0), "a/zero": np.zeros(2), "a/one": 3 * np.ones(2)}
        found[bits] = coarsest(sums, {"num_examples": 1.0, **code.steps()}, clients=3)
    assert found[32] == ("a/zero", 1.0)
    assert found[64][1] < 1e-3


def test_a_client_counts_as_no_more_examples_than_all_agreed_on(
    trained: Trained, caplog: pytest.LogCaptureFixture
) -> None:
    secure = {"most_examples": 500}
    capped = network(trained.run("fedavg", SECURE | {"secure": secure}))
    (said,) = [record.getMessage() for record in caplog.records if "hold more" in record.getMessage()]
    assert "count as 512 examples" in said
    assert all((f"{count:,}" in said) == (count > 512) for count in trained.counts)
    counts = [min(count, 512) for count in trained.counts]
    assert counts != trained.counts
    for key, tensor in capped.items():
        weights = [trained.tensors(client, "weights")[key] / trained.counts[client] for client in EVERYONE]
        mean = sum(count * one for count, one in zip(counts, weights, strict=True)) / sum(counts)
        torch.testing.assert_close(tensor.double(), mean, rtol=1e-5, atol=1e-6)


def test_two_sessions_of_the_same_clients_share_no_key() -> None:
    bound = bind_written("fedavg", {"wire": SECURE}, [tiny.TINY])
    (cell,) = tiny.tiny_settings(Path("unused"), partition={"clients": 3}).seeded_settings()
    weights = {name: torch.zeros(size) for name, size in Weights.shapes(tiny.TINY).items()}
    readers = dict.fromkeys(range(3), lambda: {Weights: Weights(weights)})
    counts = dict.fromkeys(range(3), 10)
    one, same, two, three = (
        collect_securely(bound, cell, readers, counts, session=session, private=private).messages.adverts
        for session, private in ((b"one", b"1"), (b"one", b"1"), (b"two", b"1"), (b"one", b"2"))
    )
    assert one == same
    keys = [advert[at : at + 32] for adverts in (one, two, three) for advert in adverts.values() for at in (0, 32)]
    assert len(set(keys)) == len(keys) == 18


def test_the_sessions_name_tells_nothing_of_what_clients_hold(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of other data agree on the same terms, and share no secret."""
    seen: list[tuple[bytes, bytes]] = []

    def watched(*given: Any, session: bytes, private: bytes) -> Collected:
        seen.append((session, private))
        return collect_securely(*given, session=session, private=private)

    monkeypatch.setattr("fedfisher_core.federation.secure.collect_securely", watched)
    secure = SECURE | {"secure": {"threshold": 2, "clip": 2048.0}}
    for clients in ((0, 1, 2), (0, 1, 3)):
        trained.run("fedavg", secure, clients)
    (session, private), (other_session, other_private) = seen
    assert session == other_session
    assert private != other_private


@pytest.mark.parametrize(
    ("secure", "message"),
    [
        ({"dropouts": {0: "upload", 1: "upload", 2: "keys"}}, r"2 of 5 clients.*survivors: \[3, 4\].*threshold=3"),
        ({"threshold": 4, "dropouts": DROPOUTS}, r"3 of 5 clients.*survivors: \[0, 2, 4\].*threshold=4"),
        ({"threshold": 6}, r"wire\.secure\.threshold=6 with 5 clients; allowed: 2 to the number of clients"),
        ({"dropouts": {5: "keys"}}, r"wire\.secure\.dropouts names clients \[5\]; allowed: 0 to 4"),
    ],
)
def test_a_sum_that_cannot_be_had_is_refused(secure: dict[str, Any], message: str, trained: Trained) -> None:
    with pytest.raises(InputError, match=message):
        trained.run("fedavg", SECURE | {"secure": secure})


def test_one_client_alone_has_no_secure_sum(trained: Trained) -> None:
    with pytest.raises(InputError, match=r"wire\.secure\.threshold=2 with 1 clients"):
        trained.run("fedavg", SECURE, (0,))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("regmean", "is not written in sums over clients"),
        ("centralised", "needs each client's own weights"),
        ("ensemble", "needs each client's own weights"),
        ("otfusion", "needs each client's own weights"),
        ("fedfisher_kfac", "needs each client's own kfac"),
    ],
)
def test_methods_that_need_more_than_sums_are_refused_by_name(name: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        bind_written("mine", {"method": name, "wire": SECURE}, [tiny.TINY])
    assert str(caught.value) == (
        f"methods.mine.wire.server_view='secure_sum': method {name!r} {reason}; "
        "allowed: afl, fedavg, fedcgs, fedfish, fedfisher_diag, fisher_merge, gh_lda, gradient_matching, iso_c, "
        "summed_moments"
    )


def test_a_budget_beside_a_secure_sum_is_refused() -> None:
    with pytest.raises(InputError, match=r"wire\.budget='fedavg' with wire\.server_view='secure_sum'; allowed: 'none'"):
        bind_written("fedavg", {"wire": {"server_view": "secure_sum"}}, [tiny.TINY])
    with pytest.raises(InputError, match=r"methods\.fedavg\.wire\.secure\.threshold=1"):
        bind_written("fedavg", {"wire": SECURE | {"secure": {"threshold": 1}}}, [tiny.TINY])
    with pytest.raises(InputError, match=r"wire\.secure\.dropouts: clients \[1\] drop out at 'consistency'"):
        bind_written("fedavg", {"wire": SECURE | {"secure": {"dropouts": {1: "consistency"}}}}, [tiny.TINY])
    with pytest.raises(InputError, match=r"methods\.fedavg\.wire\.secure\.dropouts"):
        bind_written("fedavg", {"wire": SECURE | {"secure": {"dropouts": {1: "never"}}}}, [tiny.TINY])


def test_the_benchmarks_wire_may_ask_for_secure_sums() -> None:
    assert bind_written("fedavg", {}, [tiny.TINY], WireSettings.model_validate(SECURE)).summation is not None
    assert bind_written("fedavg", {}, [tiny.TINY], WireSettings(budget="none")).summation is None


def test_a_step_in_which_examples_are_no_whole_numbers_is_refused(workplace: Path) -> None:
    secure = {"bits": 32, "most_examples": 2**30}
    chosen = {"fedavg": {"wire": {"budget": "none", "server_view": "secure_sum", "secure": secure}}}
    with pytest.raises(
        InputError,
        match=r"most_examples=1073741824 with 3 clients and wire\.secure\.bits=32 counts examples in steps of 2; "
        r"allowed: up to 536870912, or 64 bits",
    ):
        check_federations(tiny.tiny_settings(workplace, methods=chosen))
    secure["bits"] = 64
    assert check_federations(tiny.tiny_settings(workplace, methods=chosen))
