"""Federations over several rounds: shared beginnings, cohorts, bits, resumption, and algorithms against references."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfisher_core.client.training import train
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import DivergedClientError
from fedfisher_core.engine.plan import graph_of
from fedfisher_core.engine.seeds import Stream, torch_generator
from fedfisher_core.engine.store import read_tensors, read_timings
from fedfisher_core.experiments.benchmark.plan import make_rows
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.federation.federation import PartitionInputs
from fedfisher_core.federation.partition import examples_of
from fedfisher_core.federation.statistics import ComputeStatistic
from fedfisher_core.federation.training import TrainClient
from fedfisher_core.federation.uploads import SendUpload
from fedfisher_core.models.spec import Parameters
from fedfisher_core.settings import TrainSettings
from tests.walked import Walked, walk_tiny

FEDAVG: dict[str, Any] = {"fedavg": {}}
SGD = {"epochs": 2, "learning_rate": 0.05, "momentum": 0.0, "batch_size": 16}


def walked(folder: Path, rounds: Any, methods: dict[str, Any] = FEDAVG, **changes: Any) -> Walked:
    return walk_tiny(folder, methods, rounds=rounds, **changes)


def row_of(done: Walked, method: str = "fedavg", **wanted: Any) -> Row:
    rows = make_rows(done.plan, done.outcome)
    (row,) = (
        row for row in rows if row.method == method and all(getattr(row, key) == one for key, one in wanted.items())
    )
    return row


def network(done: Walked, method: str = "fedavg", number: int | None = None) -> Parameters:
    federations = done.plan.federations
    round_number = None if number is None else federations.rounds_of(method)[number - 1]
    job = federations.aggregation(done.federation, method, round_number)
    return read_tensors(done.made(job), "network_0.safetensors")


def start(done: Walked) -> Parameters:
    artifact = done.made(done.plan.federations.start(done.federation))
    return read_tensors(artifact, "weights.safetensors")


def examples(done: Walked, client: int) -> Examples:
    return examples_of(done.federation, PartitionInputs(done.data, done.partition), client)


def written(folder: Path) -> Counter[str]:
    return Counter(path.parent.parent.name for path in folder.glob("artifacts/*/*/manifest.json"))


def close(one: Parameters, other: Parameters, **tolerance: float) -> None:
    assert one.keys() == other.keys()
    for name, weight in one.items():
        torch.testing.assert_close(weight, other[name], **(tolerance or {"rtol": 1e-5, "atol": 1e-6}))


def equal(one: Parameters, other: Parameters) -> bool:
    return all(torch.equal(weight, other[name]) for name, weight in one.items())


def local(done: Walked, client: int, number: int, weights: Parameters, **changes: Any) -> Parameters:
    """Train a client of one round by hand, plainly unless a loss is given."""
    source = torch_generator(done.federation.setting.seed, Stream.CLIENT, client + 1, round_number=number)
    spec, settings = done.federation.spec, done.federation.settings.train
    return train(spec.load(weights), examples(done, client), settings, generator=source, **changes).parameters


def test_round_after_round_clients_train_from_the_aggregate(workplace: Path) -> None:
    done = walked(workplace, {"count": 3})
    weights = start(done)
    for number in (1, 2, 3):
        held = [len(examples(done, client)) for client in range(3)]
        trained = [local(done, client, number, weights) for client in range(3)]
        weights = {
            name: sum(count * one[name].double() for count, one in zip(held, trained, strict=True))
            .div(sum(held))
            .float()
            for name in weights
        }
        close(network(done, number=number), weights)


def test_all_methods_share_the_first_round_and_one_round_is_its_beginning(workplace: Path) -> None:
    methods = {"fedavg": {}, "fedfisher_diag": {}, "regmean": {}}
    done = walked(workplace, {"count": 3}, methods)
    assert written(workplace)["clients"] == 3 + 2 * 3 * len(methods)
    assert written(workplace)["aggregates"] == 3 * len(methods)
    before = sum(written(workplace).values())
    once = walked(workplace, {"count": 1}, methods)
    assert sum(written(workplace).values()) == before
    for method in methods:
        row = row_of(done, method)
        assert (row.num_rounds, [point.round for point in row.curve]) == (3, [1, 2, 3])
        first = row_of(once, method)
        assert (first.accuracy, first.loss, first.curve) == (row.curve[0].accuracy, row.curve[0].loss, [])
        assert (first.upload_bits, first.download_bits) == (row.curve[0].upload_bits, row.curve[0].download_bits)
        assert row.curve[-1].accuracy == row.accuracy


def test_bits_add_up_over_rounds(workplace: Path) -> None:
    done = walked(workplace, {"count": 3, "cohort": 2}, partition={"clients": 3})
    row, (first, second, third) = row_of(done), row_of(done).curve
    assert row.cohort == 2
    assert [point.upload_bits for point in row.curve] == [first.upload_bits * one for one in (1, 2, 3)]
    # In round 1 two clients get a seed, later two get the model; in the end all three get it.
    model = (first.download_bits - 2 * 64) // 3
    assert first.download_bits == 2 * 64 + 3 * model
    assert second.download_bits == 2 * 64 + 2 * model + 3 * model
    assert third.download_bits == 2 * 64 + 4 * model + 3 * model
    assert row.client_train_seconds > 0


def test_encoding_counts_in_every_round(workplace: Path) -> None:
    done = walked(workplace, {"count": 2})
    sending = [job for job in graph_of(done.plan.jobs).values() if isinstance(job, SendUpload)]
    assert len(sending) == 2 * 3
    took = [read_timings(done.made(job))["seconds"] for job in sending]
    assert row_of(done).client_encode_seconds == pytest.approx(sum(took))


def test_cohorts_are_drawn_anew_for_each_round_and_alike_for_all(workplace: Path) -> None:
    done = walked(workplace, {"count": 12, "cohort": 2}, {"fedavg": {}, "fedprox_like": {"method": "fedavg"}})
    federation, federations = done.federation, done.plan.federations
    cohorts = [federation.cohort(number) for number in range(1, 13)]
    assert all(len(set(one)) == 2 and set(one) <= {0, 1, 2} for one in cohorts)
    assert len(set(cohorts)) == 3
    assert cohorts == [federation.cohort(number) for number in range(1, 13)]
    for label in federations.methods:
        bound = federations.methods[label]
        assert [
            federations.members(federation, bound, round_number) for round_number in federations.rounds_of(label)
        ] == cohorts


def test_a_run_that_is_killed_in_round_3_ends_as_an_undisturbed_one(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"count": 4, "server_optimiser": "fedadam"}
    scaffold = {**SGD, "objective": "scaffold"}
    whole = walked(workplace / "whole", settings, train=scaffold)
    computed, of_client = [], TrainClient.train

    def killed(self: TrainClient, *given: Any) -> Any:
        if (self.round_number, self.client) == (3, 1):
            raise KeyboardInterrupt
        computed.append((self.round_number, self.client))
        return of_client(self, *given)

    monkeypatch.setattr(TrainClient, "train", killed)
    with pytest.raises(KeyboardInterrupt):
        walked(workplace / "killed", settings, train=scaffold)
    assert (3, 0) in computed
    assert (3, 1) not in computed
    again: list[tuple[int, int]] = []

    def counting(self: TrainClient, *given: Any) -> Any:
        again.append((self.round_number, self.client))
        return of_client(self, *given)

    monkeypatch.setattr(TrainClient, "train", counting)
    done = walked(workplace / "killed", settings, train=scaffold)
    assert not set(again) & set(computed)
    assert row_of(done).curve == row_of(whole).curve
    assert equal(network(done), network(whole))


def test_fedsgd_is_gradient_descent_on_all_data(workplace: Path) -> None:
    rate = 0.2
    recipe = {"epochs": None, "steps": 1, "batch_size": 120, "momentum": 0.0, "learning_rate": rate}
    done = walked(workplace, {"count": 4, "server_optimiser": {"name": "fedsgd", "learning_rate": 0.5}}, train=recipe)
    parts = [examples(done, client) for client in range(3)]
    together = Examples(torch.cat([one.inputs for one in parts]), torch.cat([one.labels for one in parts]))
    settings = TrainSettings(steps=4, learning_rate=0.5 * rate, momentum=0.0, batch_size=120)
    source = torch.Generator().manual_seed(0)
    expected = train(done.federation.spec.load(start(done)), together, settings, generator=source).parameters
    close(network(done), expected)


def test_fedprox_without_a_pull_is_fedavg(workplace: Path) -> None:
    objectives = {"plain": {}, "none": {"name": "fedprox", "mu": 0.0}, "some": {"name": "fedprox", "mu": 1.0}}
    done = walked(workplace, {"count": 2}, train={"objective": objectives})
    plain, none, some = (row_of(done, objective=label) for label in objectives)
    assert (none.accuracy, none.loss) == (plain.accuracy, plain.loss)
    assert some.loss != plain.loss


def test_scaffold_with_one_client_is_sgd(workplace: Path) -> None:
    changes: dict[str, Any] = {"partition": {"clients": 1, "scheme": "iid"}}
    rounds = {"count": 3}
    plain = walked(workplace, rounds, train=SGD, **changes)
    scaffold = walked(workplace, rounds, train={**SGD, "objective": "scaffold"}, **changes)
    close(network(scaffold), network(plain))


def test_scaffold_on_all_data_in_one_place_is_sgd(workplace: Path) -> None:
    changes: dict[str, Any] = {"train": {**SGD, "objective": ["plain", "scaffold"]}, "partition": {"clients": 3}}
    done = walked(workplace, {"count": 3}, {"centralised": {}}, **changes)
    plain, scaffold = (row_of(done, "centralised", objective=label) for label in ("plain", "scaffold"))
    assert scaffold.loss == pytest.approx(plain.loss, rel=1e-5)
    assert scaffold.upload_bits == plain.upload_bits
    assert scaffold.download_bits == plain.download_bits
    # The examples are sent once.
    assert {point.upload_bits for point in plain.curve} == {plain.upload_bits}


def test_scaffold_follows_the_papers_algorithm(workplace: Path) -> None:
    """With option II, two of three clients a round, weighted alike as clients hold as much."""
    done = walked(
        workplace,
        {"count": 3, "cohort": 2},
        train={**SGD, "objective": "scaffold"},
        partition={"clients": 3, "scheme": "iid"},
    )
    federation, settings = done.federation, done.federation.settings.train
    weights = start(done)
    server = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    own = {client: dict(server) for client in range(3)}
    for number in (1, 2, 3):
        cohort = federation.cohort(number)
        held = {client: len(examples(done, client)) for client in cohort}
        ended, steps = {}, {}
        for client in cohort:
            source = torch_generator(federation.setting.seed, Stream.CLIENT, client + 1, round_number=number)
            data = examples(done, client)
            model = federation.spec.load(weights)
            steps[client] = 0
            for _ in range(settings.epochs or 0):
                for batch in torch.randperm(len(data), generator=source).split(settings.batch_size):
                    loss = torch.nn.functional.cross_entropy(model(data.inputs[batch]), data.labels[batch])
                    gradients = torch.autograd.grad(loss, list(model.parameters()))
                    with torch.no_grad():
                        for (name, weight), gradient in zip(model.named_parameters(), gradients, strict=True):
                            weight -= settings.learning_rate * (gradient - own[client][name] + server[name])
                    steps[client] += 1
            ended[client] = {name: weight.detach() for name, weight in model.named_parameters()}
        for name in weights:
            changes = []
            for client in cohort:
                scale = 1 / (steps[client] * settings.learning_rate)
                after = own[client][name] - server[name] + scale * (weights[name] - ended[client][name])
                changes.append(after - own[client][name])
                own[client][name] = after
            server[name] = server[name] + sum(changes) / 3
        total = sum(held.values())
        weights = {name: sum(held[one] / total * ended[one][name] for one in cohort) for name in weights}
        close(network(done, number=number), weights, rtol=1e-4, atol=1e-5)
    # A control variate is as large as the network, which each of two clients sends and, after round 1, gets.
    plain = walked(workplace, {"count": 3, "cohort": 2}, train=SGD, partition={"clients": 3, "scheme": "iid"})
    size = row_of(plain).upload_bits / 6
    assert row_of(done).upload_bits == pytest.approx(2 * 6 * size, rel=0.02)
    assert row_of(done).download_bits - row_of(plain).download_bits == pytest.approx(4 * size, rel=0.02)


def test_moon_is_plain_in_the_first_round_and_not_after(workplace: Path) -> None:
    objectives = {"plain": {}, "moon": {"mu": 5.0}}
    done = walked(workplace, {"count": 2}, train={"objective": objectives, "epochs": 2})
    plain, moon = (row_of(done, objective=label).curve for label in objectives)
    assert moon[0].loss == pytest.approx(plain[0].loss, rel=1e-4)
    assert moon[1].loss != pytest.approx(plain[1].loss, rel=1e-4)


def test_adaptive_fedprox_counts_what_clients_report(workplace: Path) -> None:
    done = walked(workplace, {"count": 2}, train={"objective": ["plain", "fedprox_adaptive"]})
    plain, adaptive = (row_of(done, objective=label) for label in ("plain", "fedprox_adaptive"))
    reported = (adaptive.upload_bits - plain.upload_bits) / 6
    assert 32 <= reported < 32 + 300


def test_server_optimisers_change_what_the_next_round_starts_from(workplace: Path) -> None:
    rounds = {"count": 2, "server_optimiser": {"average": {}, "slow": {"name": "fedavgm", "learning_rate": 0.5}}}
    done = walked(workplace, rounds)
    rows = {row.server_optimiser: row for row in make_rows(done.plan, done.outcome)}
    assert rows["slow"].loss != rows["average"].loss
    # All start with the clients of the first round.
    assert written(workplace)["clients"] == 3 + 2 * 3


def test_rounds_of_a_client_have_generators_of_their_own() -> None:
    drawn = {
        tuple(torch.rand(2, generator=torch_generator(0, Stream.CLIENT, client, round_number=round_number)).tolist())
        for client in range(3)
        for round_number in range(1, 4)
    }
    assert len(drawn) == 9


def fail_once(monkeypatch: pytest.MonkeyPatch, kind: type[TrainClient | ComputeStatistic], method: str) -> None:
    """Have client 1 diverge in round 1 where jobs of a kind call a method."""
    called = getattr(kind, method)

    def failing(self: TrainClient | ComputeStatistic, *given: Any) -> Any:
        if (self.client, self.round_number) == (1, 1):
            raise DivergedClientError("a number is not finite")
        return called(self, *given)

    monkeypatch.setattr(kind, method, failing)


@pytest.mark.parametrize(("objective", "rounds"), [("plain", [1]), ("scaffold", [1, 2, 3])])
def test_a_client_that_failed_comes_again_unless_it_must_remember(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, objective: str, rounds: list[int]
) -> None:
    fail_once(monkeypatch, TrainClient, "train")
    done = walked(workplace, {"count": 3}, run={"min_clients": 2}, train={**SGD, "objective": objective})
    federations = done.plan.federations
    trainings = {
        round_number.number: federations.training(done.federation, 1, round_number)
        for round_number in federations.rounds_of("fedavg")
    }
    assert [number for number, job in trainings.items() if done.divergence(job)] == rounds


def test_what_a_client_reports_counts_where_its_upload_is_lost(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's control variate stays the mean of the clients', which a client whose Fisher is lost goes on from."""
    fail_once(monkeypatch, ComputeStatistic, "_compute")
    scaffold = {**SGD, "objective": "scaffold"}
    done = walked(workplace, {"count": 2}, {"fisher_merge": {}}, run={"min_clients": 1}, train=scaffold)
    federations, artifacts = done.plan.federations, done.outcome.artifacts
    for round_number in federations.rounds_of("fisher_merge"):
        aggregate = artifacts[federations.aggregation(done.federation, "fisher_merge", round_number).name]
        sent = read_tensors(aggregate, "sent.safetensors")
        trainings = [
            federations.training(done.federation, client, round_number).name for client in done.federation.participants
        ]
        kept = [read_tensors(artifacts[name], "kept.safetensors") for name in trainings]
        close(sent, {name: torch.stack([own[name] for own in kept]).mean(0) for name in sent})
