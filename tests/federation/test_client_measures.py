"""What is measured on clients' own examples, against hand loops; and clients that take part in no round."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from fedfisher_core.client.training import train
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import DivergedClientError, InputError
from fedfisher_core.engine.plan import graph_of
from fedfisher_core.engine.seeds import Stream, torch_generator
from fedfisher_core.engine.store import read_tensors
from fedfisher_core.experiments.benchmark.plan import make_rows
from fedfisher_core.experiments.benchmark.runs import make_runs
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.client_measures import Personalise, read_personalisation
from fedfisher_core.federation.federation import POOLED, PartitionInputs
from fedfisher_core.federation.global_models import read_result
from fedfisher_core.federation.partition import examples_of, held_by, label_counts, validation_set
from fedfisher_core.federation.training import TrainClient
from fedfisher_core.models.spec import Parameters
from fedfisher_core.settings import TrainSettings
from tests import tiny
from tests.walked import Walked, walk_tiny

FEDAVG: dict[str, Any] = {"fedavg": {}}
FOUR = {"clients": 4}

# A barrier is the difference of two losses of about 1 in single precision.
BESIDE_ROUNDING = 3e-7


def personalisation(unseen: int = 1, **changes: Any) -> dict[str, Any]:
    return {"personalisation": {"unseen_clients": unseen, **changes}}


def walked(folder: Path, measures: dict[str, Any], methods: dict[str, Any] = FEDAVG, **changes: Any) -> Walked:
    return walk_tiny(folder, methods, measures=measures, **{"partition": FOUR, **changes})


def network(done: Walked, method: str = "fedavg") -> Parameters:
    return read_tensors(done.aggregate(method), "network_0.safetensors")


def examples(done: Walked, client: int) -> Examples:
    return examples_of(done.federation, PartitionInputs(done.data, done.partition), client)


def trained(done: Walked, client: int, method: str = "fedavg") -> Parameters:
    """What a client of the last round trained."""
    federations = done.plan.federations
    job = federations.training(done.federation, client, federations.rounds_of(method)[-1])
    return read_tensors(done.made(job), "tensors.safetensors")


def score(done: Walked, weights: Parameters, data: Examples) -> tuple[float, float]:
    """Accuracy and loss, example by example."""
    model, right, loss = done.federation.spec.load(weights).eval(), 0, 0.0
    with torch.no_grad():
        for one, label in zip(data.inputs, data.labels, strict=True):
            outputs = model(one[None])[0].double()
            right += int(outputs.argmax() == label)
            loss += float(-outputs.log_softmax(0)[label])
    return right / len(data), loss / len(data)


def barrier_by_hand(done: Walked, clients: tuple[int, ...], method: str = "fedavg") -> tuple[float, float]:
    differences = []
    for client in clients:
        data = examples(done, client)
        own, shared = score(done, trained(done, client, method), data), score(done, network(done, method), data)
        differences.append((own[0] - shared[0], shared[1] - own[1]))
    accuracies, losses = zip(*differences, strict=True)
    return sum(accuracies) / len(clients), sum(losses) / len(clients)


@pytest.mark.parametrize("rounds", [{}, {"count": 3, "cohort": 2}, {"count": 2, "server_optimiser": "fedadam"}])
def test_the_barrier_is_that_of_the_last_rounds_clients(workplace: Path, rounds: dict[str, Any]) -> None:
    done = walked(workplace, {"barrier": True}, {"fedavg": {}, "fedfisher_diag": {}}, rounds=rounds)
    cohort = done.federation.cohort(rounds.get("count", 1))
    for method, row in done.rows.items():
        expected = barrier_by_hand(done, cohort, method)
        assert row.barrier_accuracy == pytest.approx(expected[0], abs=1e-12)
        assert row.barrier_loss == pytest.approx(expected[1], rel=1e-5, abs=BESIDE_ROUNDING)
        assert abs(expected[1]) > 1e-4
        assert (row.unseen_clients, row.unseen_accuracy, row.personalised_loss) == (None, None, None)


def test_the_barrier_of_one_client_is_none(workplace: Path) -> None:
    done = walked(workplace, {"barrier": True}, partition={"clients": 1, "scheme": "iid"})
    row = done.rows["fedavg"]
    assert (row.barrier_accuracy, row.barrier_loss) == (0.0, pytest.approx(0.0, abs=1e-6))


def test_the_barrier_is_of_examples_as_their_clients_see_them(workplace: Path) -> None:
    shift = {"kind": "labels", "strength": 0.5}
    done = walked(workplace, {"barrier": True}, partition={**FOUR, "shift": shift})
    expected = barrier_by_hand(done, (0, 1, 2, 3))
    assert done.rows["fedavg"].barrier_loss == pytest.approx(expected[1], rel=1e-5, abs=BESIDE_ROUNDING)


def test_the_barrier_goes_without_clients_that_failed(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_client = TrainClient.train

    def diverging(self: TrainClient, *given: Any) -> Any:
        if self.client == 1:
            raise DivergedClientError("training loss is nan")
        return of_client(self, *given)

    monkeypatch.setattr(TrainClient, "train", diverging)
    done = walked(workplace, {"barrier": True}, run={"min_clients": 3})
    row = done.rows["fedavg"]
    assert row.failed_clients == [1]
    assert row.barrier_loss == pytest.approx(barrier_by_hand(done, (0, 2, 3))[1], rel=1e-5)


@pytest.mark.parametrize("rounds", [{}, {"count": 2, "cohort": 1}])
def test_unseen_clients_train_the_last_network_for_themselves(workplace: Path, rounds: dict[str, Any]) -> None:
    measures = personalisation(2, epochs=3, share=0.3)
    done = walked(workplace, measures, {"fedavg": {}, "fedfisher_diag": {}}, rounds=rounds)
    federation, chosen = done.federation, done.federation.settings.train
    for method, row in done.rows.items():
        before, after = [], []
        for client in (2, 3):
            data = examples(done, client)
            source = torch_generator(federation.setting.seed, Stream.PERSONALISATION, client + 1)
            order = torch.randperm(len(data), generator=source)
            some, others = order[: int(0.3 * len(data))], order[int(0.3 * len(data)) :]
            assert len(some) >= 1
            model = federation.spec.load(network(done, method))
            optimiser = torch.optim.SGD(model.parameters(), lr=chosen.learning_rate, momentum=chosen.momentum)
            for _ in range(3):
                for batch in torch.randperm(len(some), generator=source).split(chosen.batch_size):
                    picked = some[batch]
                    optimiser.zero_grad()
                    functional.cross_entropy(model(data.inputs[picked]), data.labels[picked]).backward()
                    optimiser.step()
            rest = Examples(data.inputs[others], data.labels[others])
            before.append(score(done, network(done, method), rest))
            after.append(score(done, {name: one.detach() for name, one in model.named_parameters()}, rest))
        assert row.unseen_clients == 2
        assert row.unseen_accuracy == pytest.approx((before[0][0] + before[1][0]) / 2, abs=1e-12)
        assert row.unseen_loss == pytest.approx((before[0][1] + before[1][1]) / 2, rel=1e-5)
        assert row.personalised_accuracy == pytest.approx((after[0][0] + after[1][0]) / 2, abs=1e-12)
        assert row.personalised_loss == pytest.approx((after[0][1] + after[1][1]) / 2, rel=1e-4)
        assert row.personalised_loss != pytest.approx(row.unseen_loss, rel=1e-3)
        assert row.barrier_loss is None


def test_unseen_clients_train_plainly_whatever_others_minimise(workplace: Path) -> None:
    done = walked(
        workplace,
        personalisation(share=0.5),
        train={"objective": {"smooth": {"name": "label_smoothing", "amount": 0.9}}},
    )
    data = examples(done, 3)
    source = torch_generator(0, Stream.PERSONALISATION, 4)
    some, others = torch.randperm(len(data), generator=source).tensor_split([len(data) // 2])
    recipe = TrainSettings(epochs=1, learning_rate=0.05, batch_size=16)
    own = train(
        done.federation.spec.load(network(done)),
        Examples(data.inputs[some], data.labels[some]),
        recipe,
        generator=source,
    )
    expected = score(done, own.parameters, Examples(data.inputs[others], data.labels[others]))
    assert done.rows["fedavg"].personalised_loss == pytest.approx(expected[1], rel=1e-5, abs=BESIDE_ROUNDING)


def test_unseen_clients_train_alone_and_are_named_so_whoever_trains_together(workplace: Path) -> None:
    alone = walked(workplace, personalisation(), model={"name": "mlp"})
    stacked = walked(workplace, personalisation(), model={"name": "mlp"}, train={"together": 2})

    def settings_of(done: Walked) -> dict[str, Any]:
        (job,) = (job for job in graph_of(done.plan.jobs).values() if isinstance(job, Personalise))
        return dict(job.settings())

    # The networks that they start from differ by rounding.
    assert settings_of(stacked) == settings_of(alone)


def test_unseen_clients_are_in_no_cohort_and_send_nothing(workplace: Path) -> None:
    methods = {"fedavg": {}, "fedfisher_diag": {}}
    done = walked(workplace, personalisation(2), methods, rounds={"count": 6, "cohort": 1})
    federations, federation = done.plan.federations, done.federation
    cohorts = [federation.cohort(number) for number in range(1, 7)]
    assert {client for cohort in cohorts for client in cohort} == {0, 1}
    kinds = ("Personalise", "SplitData", "DecodeData", "DrawStart")
    others = [job for job in graph_of(federations.jobs()).values() if type(job).__name__ not in kinds]
    assert {job.client for job in others if hasattr(job, "client")} == {0, 1}
    assert {client for job in others if hasattr(job.needs, "clients") for client in job.needs.clients} == {0, 1}
    # Where all take part, all are all the others.
    assert walked(workplace, personalisation(2), methods).federation.cohort(1) == (0, 1)


def test_bits_count_those_that_may_take_part(workplace: Path) -> None:
    (unseen,) = walked(workplace, personalisation(1)).rows.values()
    (three,) = walked(workplace, {}, partition={"clients": 3}).rows.values()
    assert (unseen.upload_bits, unseen.download_bits) == (three.upload_bits, three.download_bits)
    assert (unseen.num_clients, unseen.unseen_clients) == (4, 1)


def test_secure_aggregation_is_among_those_that_may_take_part(workplace: Path) -> None:
    wire = {"budget": "none", "server_view": "secure_sum"}
    done = walked(workplace, personalisation(1), wire=wire)
    assert read_result(done.aggregate("fedavg")).details["clients_in_sum"] == 3


def test_nothing_of_unseen_clients_reaches_the_server_or_the_pooled_client(workplace: Path) -> None:
    done = walked(workplace, personalisation(1), {"fedavg": {}, "centralised": {}}, data={"validation_size": 60})
    unseen = set(held_by(done.partition, 3).tolist())
    assert not unseen & set(validation_set(done.partition).tolist())
    assert not unseen & set(held_by(done.partition, POOLED).tolist())
    assert len(held_by(done.partition, POOLED)) + len(unseen) == tiny.TRAIN
    all_in = walked(workplace, {}, data={"validation_size": 60})
    assert unseen & set(validation_set(all_in.partition).tolist())
    assert unseen == set(held_by(all_in.partition, 3).tolist())


def test_the_worst_client_is_one_that_may_take_part(workplace: Path) -> None:
    done = walked(workplace, personalisation(3), partition={"clients": 4, "alpha": [0.05]})
    measures = done.measures("fedavg")
    confusion = torch.tensor(measures.confusion)
    by_class = confusion.diagonal() / confusion.sum(1)
    counts = torch.tensor(label_counts(done.partition), dtype=torch.float)
    each = (counts * by_class).sum(1) / counts.sum(1)
    assert measures.worst_client_accuracy == pytest.approx(float(each[0]))
    assert each.min() < each[0]


def test_methods_without_one_network_have_no_measures(workplace: Path) -> None:
    methods = {"fedavg": {}, "ensemble": {}, "local_mean": {}, "centralised": {}}
    rows = walked(workplace, {"barrier": True, **personalisation(1)}, methods).rows
    for method in ("ensemble", "local_mean"):
        assert (rows[method].barrier_accuracy, rows[method].unseen_accuracy) == (None, None)
    # Its network is no client's, but an unseen client may go on from it.
    assert rows["centralised"].barrier_accuracy is None
    assert rows["centralised"].personalised_accuracy is not None
    assert None not in (rows["fedavg"].barrier_accuracy, rows["fedavg"].personalised_accuracy)


def test_measures_leave_what_others_made_as_it_is(workplace: Path) -> None:
    plain = walked(workplace, {})
    before = {path.name for path in workplace.glob("artifacts/*/*")}
    measured = walked(workplace, {"barrier": True})
    after = {path.parent.name: path for path in workplace.glob("artifacts/*/*") if path.name not in before}
    assert {*after} == {"barriers"}
    assert {job.name for job in plain.plan.jobs} < {job.name for job in measured.plan.jobs}


def test_a_personalisation_that_fails_leaves_the_row(workplace: Path) -> None:
    done = walked(workplace, {"barrier": True, **personalisation(2)})
    lost = done.plan.federations.measuring(done.federation, "fedavg").personalisations[1].name
    assert read_personalisation(done.outcome.artifacts[lost]).own.accuracy >= 0
    left = {name: one for name, one in done.outcome.artifacts.items() if name != lost}
    (row,) = make_rows(done.plan, type(done.outcome)(artifacts=left))
    assert (row.unseen_accuracy, row.personalised_loss) == (None, None)
    assert row.barrier_loss is not None


def test_mlflow_gets_measures_and_how_many_clients_are_unseen(workplace: Path) -> None:
    plain, measured = walked(workplace, {}), walked(workplace, {"barrier": True, **personalisation(1)})
    (before,), (run,) = (make_runs(one.plan, one.outcome, [*one.rows.values()]).single for one in (plain, measured))
    row = measured.rows["fedavg"]
    names = {"barrier_accuracy", "barrier_loss", "unseen_accuracy", "unseen_loss"}
    names |= {"personalised_accuracy", "personalised_loss"}
    assert {name: run.metrics[name] for name in names} == {name: getattr(row, name) for name in names}
    assert run.params == {**before.params, "unseen_clients": "1"}
    assert run.metrics.keys() - before.metrics.keys() == names


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"measures": personalisation(0)}, r"measures\.personalisation\.unseen_clients=0"),
        ({"measures": {"personalisation": {}}}, r"measures\.personalisation\.unseen_clients"),
        ({"measures": personalisation(4)}, r"unseen_clients=4 of partition\.clients=4 leaves none.*allowed: 1 to 3"),
        (
            {"measures": personalisation(3), "rounds": {"cohort": 2}},
            r"unseen_clients=3 of partition\.clients=4 leaves fewer than rounds\.cohort=2; allowed: 1 to 2",
        ),
        (
            {"measures": personalisation(1), "rounds": {"cohort": 4}},
            r"unseen_clients=1 of partition\.clients=4.*rounds\.cohort=4; allowed: personalisation: null",
        ),
        ({"measures": personalisation(1), "partition": {**FOUR, "min_size": 1}}, r"partition\.min_size=1.*2 or more"),
        (
            {"measures": personalisation(9_999), "partition": {"clients": 10_000}, "seeds": list(range(11))},
            r"110,000 uploads and personalisations; allowed: up to 100,000",
        ),
        (
            {"measures": {"barrier": True}, "methods": {"ensemble": {}, "centralised": {}}},
            r"measures\.barrier=true, but none of the methods \(ensemble, centralised\) returns.*as fedavg",
        ),
        (
            {"measures": personalisation(1), "methods": {"ensemble": {}}},
            r"measures\.personalisation, but none of the methods \(ensemble\) returns",
        ),
        ({"measures": personalisation(1, share=1.0)}, r"measures\.personalisation\.share=1"),
        ({"measures": personalisation(1, epochs=0)}, r"measures\.personalisation\.epochs=0"),
        ({"measures": {"barrier": True}, "privacy": {"epsilon": 3.0}}, r"measures\.barrier=true with privacy"),
        ({"measures": personalisation(1), "privacy": {"epsilon": 3.0}}, r"measures\.personalisation with privacy"),
        (
            {"measures": personalisation(2), "run": {"min_clients": 3}},
            r"run\.min_clients=3 exceeds partition\.clients=4 less measures\.personalisation\.unseen_clients=2",
        ),
        (
            {
                "measures": personalisation(1),
                "wire": {"budget": "none", "server_view": "secure_sum", "secure": {"dropouts": {3: "upload"}}},
            },
            r"wire\.secure\.dropouts names clients \[3\]; allowed: 0 to 2",
        ),
    ],
)
def test_what_can_not_be_is_refused_by_name(workplace: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_federations(tiny.tiny_settings(workplace, **{"methods": FEDAVG, "partition": FOUR, **changes}))


def test_validation_images_that_only_unseen_clients_hold_are_refused(workplace: Path) -> None:
    with pytest.raises(InputError, match=r"data\.validation_size=1.*no client that takes part holds any"):
        walked(workplace, personalisation(3), data={"validation_size": 1}, seeds=list(range(20)))
