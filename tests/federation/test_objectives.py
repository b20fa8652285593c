"""What clients minimise, as a dimension of a tiny benchmark."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfisher_core.client.objectives.objective import configure_objective
from fedfisher_core.client.training import train
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.seeds import Stream, torch_generator
from fedfisher_core.engine.store import read_tensors
from fedfisher_core.experiments.benchmark.plan import make_rows
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.federation import Federation, PartitionInputs
from fedfisher_core.federation.jobs import Federations
from fedfisher_core.federation.partition import examples_of
from fedfisher_core.federation.training import TrainClient
from fedfisher_core.federation.uploads import TENSORS
from tests import tiny
from tests.walked import Walked, walk_tiny

METHODS = {"fedavg": {}, "fedfisher_diag": {}}
STRONG = {"name": "fedprox", "mu": 3.0}
TWO = {"plain": {}, "strong": STRONG}


def walked(folder: Path, objective: Any, methods: dict[str, Any] = METHODS, **changes: Any) -> Walked:
    return walk_tiny(folder, methods, train={"objective": objective}, **changes)


def rows_of(done: Walked) -> dict[tuple[str, str], Row]:
    return {(row.objective, row.method): row for row in make_rows(done.plan, done.outcome)}


def written(folder: Path) -> Counter[str]:
    return Counter(path.parent.parent.name for path in folder.glob("artifacts/*/*/manifest.json"))


def measured(row: Row) -> tuple[Any, ...]:
    return row.accuracy, row.loss, row.upload_bits, row.artifact


def comparison_page_of(federations: Federations, objective: str) -> Federation:
    (federation,) = (one for one in federations.all if one.setting.objective == objective)
    return federation


def test_each_client_is_trained_once_for_each_objective_and_all_methods_share_it(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, of_client = [], TrainClient.train

    def counting(self: TrainClient, *given: Any) -> Any:
        trained.append((self.federation.setting.objective, self.client))
        return of_client(self, *given)

    monkeypatch.setattr(TrainClient, "train", counting)
    done = walked(workplace, TWO)
    assert sorted(trained) == [(label, client) for label in TWO for client in range(3)]
    rows = rows_of(done)
    assert set(rows) == {(one, method) for one in TWO for method in METHODS}
    # Three clients, by two objectives; who holds what and where they start is common to both.
    assert written(workplace) == {
        "data": 1,
        "partitions": 1,
        "starts": 1,
        "clients": 6,
        "statistics": 6,
        "payloads": 12,
        "aggregates": 4,
        "measures": 4,
    }
    # Both are aggregated as in benchmarks of their own, of which nothing is left to compute.
    plain = rows_of(walked(workplace, "plain"))
    strong = rows_of(walked(workplace, {"strong": STRONG}))
    assert sum(written(workplace).values()) == 35
    for key, row in rows.items():
        assert measured(row) == measured((plain | strong)[key])
    assert rows["plain", "fedavg"].loss != rows["strong", "fedavg"].loss


def test_a_client_minimises_its_objective_from_its_start(workplace: Path) -> None:
    done = walked(workplace, TWO, {"fedavg": {}})
    federations = done.plan.federations
    for label in TWO:
        federation = comparison_page_of(federations, label)
        job = federations.training(federation, 1)
        inputs = PartitionInputs(*(done.made(one) for one in (job.needs.data, job.needs.partition)))
        examples = examples_of(federation, inputs, 1)
        network = federation.spec.load(read_tensors(done.made(job.needs.start), "weights.safetensors"))
        settings = federation.settings.train
        losses = configure_objective(label, settings.objective).losses(network, examples.labels, tiny.CLASSES)
        source = torch_generator(federation.setting.seed, Stream.CLIENT, 2)
        expected = train(network, examples, settings, generator=source, losses=losses).parameters
        found = read_tensors(done.made(job), TENSORS)
        assert all(torch.equal(found[name], weight) for name, weight in expected.items())


def test_labels_do_not_change_a_result_and_settings_do(workplace: Path) -> None:
    done = walked(workplace, {"one": STRONG, "other": STRONG, "weaker": {**STRONG, "mu": 1.0}}, {"fedavg": {}})
    rows = rows_of(done)
    assert written(workplace)["clients"] == 6
    assert measured(rows["one", "fedavg"]) == measured(rows["other", "fedavg"])
    assert rows["weaker", "fedavg"].loss != rows["one", "fedavg"].loss


def test_plain_clients_have_the_names_and_settings_that_they_had_without_objectives(workplace: Path) -> None:
    done = walked(workplace, TWO, {"fedavg": {}})
    federations = done.plan.federations
    federation, other = (comparison_page_of(federations, label) for label in TWO)
    job = federations.training(federation, 0)
    assert job.name == "train client 0 of tiny tiny dirichlet_client alpha=0.5 clients=3 seed=0"
    assert other.label == "tiny tiny dirichlet_client alpha=0.5 clients=3 objective=strong seed=0"
    assert "objective" not in job.settings()["train"]
    chosen = federations.training(other, 0).settings()["train"]
    assert chosen["objective"] == {"name": "fedprox", "mu": 3.0}
    rows = rows_of(done)
    assert "objective" not in (rows["plain", "fedavg"].training or {})
    assert (rows["strong", "fedavg"].training or {})["objective"] == {"name": "fedprox", "mu": 3.0}


def test_objectives_restrict_methods_and_points(workplace: Path) -> None:
    objective = ["plain", "label_smoothing", "restricted_softmax"]
    methods = {"fedavg": {}, "regmean": {"only": {"objective": "label_smoothing"}}}
    settings = tiny.tiny_settings(
        workplace, methods=methods, train={"objective": objective}, skip=[{"objective": "restricted_softmax"}]
    )
    federations = check_federations(settings)
    found = {federation.setting.objective: list(federations.methods_of(federation)) for federation in federations.all}
    assert found == {"plain": ["fedavg"], "label_smoothing": ["fedavg", "regmean"]}


def test_an_objective_has_clients_train_in_a_way_of_its_own(workplace: Path) -> None:
    slow = {**STRONG, "train": {"learning_rate": 0.02, "steps": 3}}
    rows = rows_of(walked(workplace, {"plain": {}, "slow": slow, "strong": STRONG}, METHODS))
    kept = written(workplace)
    trained = {"objective": {"slow": STRONG}, "learning_rate": 0.02, "epochs": None, "steps": 3}
    alone = walk_tiny(workplace, METHODS, train=trained)
    assert written(workplace) == kept
    assert all(measured(row) == measured(rows[key]) for key, row in rows_of(alone).items())
    assert len({rows[label, "fedavg"].loss for label in ("plain", "slow", "strong")}) == 3
    training = rows["slow", "fedavg"].training or {}
    assert (training["learning_rate"], training["steps"], training["epochs"]) == (0.02, 3, None)
    assert (rows["strong", "fedavg"].training or {})["steps"] is None


def test_what_private_clients_may_do_follows_their_own_training(workplace: Path) -> None:
    objective = {"plain": {}, "long": {"name": "plain", "train": {"epochs": 20}}}
    done = walked(workplace, objective, {"fedavg": {}}, privacy=PRIVATE)
    plain, longer = (comparison_page_of(done.plan.federations, label) for label in objective)
    noises = [done.plan.federations.budget(federation, 0).noise(1000) for federation in (plain, longer)]
    assert noises[0].training < noises[1].training


def test_secure_sums_and_the_pooled_client_know_the_objective(workplace: Path) -> None:
    secure = {"method": "fedavg", "wire": {"budget": "none", "server_view": "secure_sum"}}
    rows = rows_of(walked(workplace, TWO, {"fedavg": {}, "secure": secure, "centralised": {}}))
    for method in ("secure", "centralised"):
        assert rows["plain", method].loss != rows["strong", method].loss
    assert rows["strong", "secure"].loss == pytest.approx(rows["strong", "fedavg"].loss, rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": {"objective": "fedprx"}}, r"train\.objective\.fedprx: unknown objective 'fedprx'; did you mean"),
        ({"train": {"objective": {"a": {"name": "fedprox", "mu": -2}}}}, r"train\.objective\.a\.mu=-2"),
        (
            {"train": {"momentum": 0.0, "objective": {"a": {"name": "scaffold", "train": {"momentum": 0.5}}}}},
            r"train\.momentum=0\.5.*scaffold",
        ),
        (
            {"methods": {"fedavg": {"only": {"objective": "fedprox"}}}},
            r"methods\.fedavg\.only\.objective='fedprox' is not in the benchmark; allowed: plain",
        ),
        (
            {
                "train": {"momentum": 0.0, "objective": ["plain", "scaffold"]},
                "methods": {"fedavg": {"wire": {"budget": "none", "server_view": "secure_sum"}}},
            },
            r"train\.objective='scaffold' with wire\.server_view='secure_sum' of method 'fedavg': what each client "
            r"reports .* allowed: 'declared', or .*methods\.fedavg\.only\.objective",
        ),
    ],
)
def test_objectives_that_cannot_be_are_refused_before_any_work(
    workplace: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        check_federations(tiny.tiny_settings(workplace, **changes))
    assert list(workplace.iterdir()) == []


PRIVATE = {"epsilon": 4.0, "delta": 1e-3}


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (
            {"mine": {"name": "logit_adjustment"}},
            r"train\.objective='mine' with privacy: 'logit_adjustment' reads the client's label counts, which no "
            r"budget counts; allowed: .*label_smoothing.*, plain",
        ),
        (["plain", "restricted_softmax"], r"train\.objective='restricted_softmax' with privacy: .* label counts"),
        ("fedprox", r"train\.objective='fedprox' with privacy: 'fedprox' adds a gradient to those of the examples"),
    ],
)
def test_with_privacy_objectives_that_no_budget_covers_are_refused(
    workplace: Path, objective: Any, message: str
) -> None:
    settings = tiny.tiny_settings(workplace, privacy=PRIVATE, train={"objective": objective})
    with pytest.raises(InputError, match=message):
        check_federations(settings)


def test_private_clients_and_their_audit_minimise_smoothed_labels(workplace: Path) -> None:
    objective = {"plain": {}, "half": {"name": "label_smoothing", "amount": 0.5}}
    audit = {"canaries": 5, "guesses": 5}
    done = walked(workplace, objective, {"fedavg": {}}, privacy=PRIVATE, audit=audit)
    rows = rows_of(done)
    assert rows["plain", "fedavg"].loss != rows["half", "fedavg"].loss
    assert {row.epsilon for row in rows.values()} == {rows["plain", "fedavg"].epsilon}
    assert written(workplace)["audits"] == 2
