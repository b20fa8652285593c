"""Clients of a tiny federation that train together."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import DivergedClientError, InputError
from fedfisher_core.engine.plan import graph_of
from fedfisher_core.engine.store import Artifact, read_document, read_tensors
from fedfisher_core.federation import training
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.federation import Federation, Round
from fedfisher_core.federation.training import TrainTogether, group_of, group_size
from fedfisher_core.federation.uploads import TENSORS
from tests import tiny
from tests.models.test_batch_norm import SPEC
from tests.walked import Walked, walk_tiny

FEDAVG: dict[str, Any] = {"fedavg": {}}
TOGETHER = {"together": 2}


def trained(done: Walked, client: int) -> Artifact:
    return done.made(done.plan.federations.training(done.federation, client))


def weights(done: Walked, client: int) -> dict[str, Tensor]:
    return read_tensors(trained(done, client), TENSORS)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many clients trained in one call each time."""
    sizes: list[int] = []
    whole = training.train_together

    def noting(spec: Any, members: Any, settings: Any) -> Any:
        sizes.append(len(members))
        return whole(spec, members, settings)

    monkeypatch.setattr(training, "train_together", noting)
    return sizes


def test_clients_become_what_each_becomes_by_itself(workplace: Path, groups: list[int]) -> None:
    methods = {"fedavg": {}, "fedfisher_diag": {}, "centralised": {}}
    apart = walk_tiny(workplace, methods)
    assert groups == []
    beside = walk_tiny(workplace, methods, train=TOGETHER)
    # Of three clients, one is left over; it trains as it always does, and so does the pooled one.
    assert groups == [2]
    assert trained(beside, 2) == trained(apart, 2)
    for client in (0, 1):
        assert trained(beside, client).key != trained(apart, client).key
        found, expected = (read_document(trained(one, client), "training.json") for one in (beside, apart))
        assert found["num_examples"] == expected["num_examples"]
        assert found["epoch_losses"] == pytest.approx(expected["epoch_losses"], abs=1e-5)
        for name, tensor in weights(apart, client).items():
            torch.testing.assert_close(weights(beside, client)[name], tensor, rtol=0, atol=1e-5)
    for method, row in apart.rows.items():
        assert beside.rows[method].accuracy == pytest.approx(row.accuracy, abs=0.02)
        assert beside.rows[method].upload_bits_formula == row.upload_bits_formula


# The first reads nothing of a client, so that one loss serves all; the second has another for each.
@pytest.mark.parametrize("objective", ["label_smoothing", "logit_adjustment"])
def test_each_client_minimises_the_loss_that_it_has_by_itself(workplace: Path, objective: str) -> None:
    apart = walk_tiny(workplace, FEDAVG, train={"objective": objective})
    beside = walk_tiny(workplace, FEDAVG, train={"objective": objective, "together": 3})
    for client in range(3):
        for name, tensor in weights(apart, client).items():
            torch.testing.assert_close(weights(beside, client)[name], tensor, rtol=0, atol=1e-5)


def test_a_group_of_which_a_part_is_there_is_trained_as_before(workplace: Path, groups: list[int]) -> None:
    first = walk_tiny(workplace, FEDAVG, train={"together": 3})
    lost = trained(first, 1)
    shutil.rmtree(next(workplace.glob(f"artifacts/*/{lost.key}")))
    # What is there of the servers would ask for no training.
    for kind in ("payloads", "aggregates"):
        shutil.rmtree(workplace / "artifacts" / kind)
    again = walk_tiny(workplace, FEDAVG, train={"together": 3})
    assert groups == [3, 3]
    assert trained(again, 1).digest == lost.digest
    assert [trained(again, client) for client in (0, 2)] == [trained(first, client) for client in (0, 2)]


def test_who_trains_beside_a_client_is_part_of_its_name(workplace: Path) -> None:
    pairs, all_of_them = (walk_tiny(workplace, FEDAVG, train={"together": size}) for size in (2, 3))
    assert trained(pairs, 0).key != trained(all_of_them, 0).key


def test_each_round_has_groups_of_its_cohort(workplace: Path, groups: list[int]) -> None:
    chosen: dict[str, Any] = {"rounds": {"count": 3, "cohort": 4}, "partition": {"clients": [6], "min_size": 2}}
    apart = walk_tiny(workplace, FEDAVG, **chosen)
    beside = walk_tiny(workplace, FEDAVG, **chosen, train=TOGETHER)
    assert groups == [2] * 6
    federations, federation = beside.plan.federations, beside.federation
    for number, round_number in enumerate((Round(), Round(2, "fedavg"), Round(3, "fedavg")), start=1):
        cohort = federation.cohort(number)
        jobs = [federations.training(federation, client, round_number) for client in cohort]
        assert [job.members for job in jobs if isinstance(job, TrainTogether)] == [cohort[:2]] * 2 + [cohort[2:]] * 2
        assert len({job.title for job in jobs}) == 2
    assert beside.rows["fedavg"].loss == pytest.approx(apart.rows["fedavg"].loss, abs=1e-4)


@pytest.fixture
def one_explodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the second client examples on which no loss is finite."""
    own = training.examples_of

    def examples_of(federation: Any, inputs: Any, client: int) -> Examples:
        found = own(federation, inputs, client)
        return replace(found, inputs=found.inputs * torch.nan) if client == 1 else found

    monkeypatch.setattr(training, "examples_of", examples_of)


def test_one_that_diverges_is_lost_and_those_beside_it_are_not(
    workplace: Path, groups: list[int], one_explodes: None
) -> None:
    done = walk_tiny(workplace, FEDAVG, train={"together": 3}, run={"min_clients": 2})
    assert done.rows["fedavg"].failed_clients == [1]
    assert done.divergence(done.plan.federations.training(done.federation, 1)) == (
        "client 1 of tiny tiny dirichlet_client alpha=0.5 clients=3 seed=0: training loss is nan in epoch 1"
    )
    assert groups == [3]


def test_without_leave_to_go_on_one_that_diverges_ends_the_work(workplace: Path, one_explodes: None) -> None:
    with pytest.raises(
        DivergedClientError, match=r"^client 1 of .*; run\.min_clients asks for all clients, 2 are left"
    ):
        walk_tiny(workplace, FEDAVG, train={"together": 3})


def test_the_seconds_of_a_group_are_shared_out_by_steps(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 19.0])
    done = walk_tiny(workplace, FEDAVG)
    federations = check_federations(tiny.tiny_settings(workplace, train={"together": 3}))
    jobs = [job for job in graph_of(federations.jobs()).values() if isinstance(job, TrainTogether)]
    monkeypatch.setattr("fedfisher_core.engine.costs.time.perf_counter", lambda: next(clock))
    read = replace(
        jobs[0].needs,
        data=done.data,
        partition=done.partition,
        start=done.made(done.plan.federations.start(done.federation)),
    )
    contents = TrainTogether.compute_together(jobs, [read] * 3)
    seconds = [one.timings["seconds"] for one in contents if not isinstance(one, DivergedClientError)]
    sizes = [read_document(trained(done, client), "training.json")["num_examples"] for client in range(3)]
    steps = [-(-size // 16) for size in sizes]
    assert seconds == pytest.approx([9.0 * one / sum(steps) for one in steps])


def test_without_the_setting_settings_are_written_as_before_there_was_one(workplace: Path) -> None:
    assert "together" not in tiny.tiny_settings(workplace).model_dump()["train"]
    assert tiny.tiny_settings(workplace, train=TOGETHER).model_dump()["train"]["together"] == 2
    assert tiny.tiny_settings(workplace, train={"together": None}).model_dump()["train"]["together"] is None


def split_of(clients: int) -> dict[str, Any]:
    return {"scheme": "iid", "clients": clients, "min_size": 1}


def many(workplace: Path, **changes: Any) -> Federation:
    """A federation of small clients."""
    small = {"partition": split_of(100), "train": {"batch_size": 16, "epochs": 1}}
    changes = {**small, **changes, "train": {**small["train"], **changes.get("train", {})}}
    (federation,) = check_federations(tiny.tiny_settings(workplace, **changes)).all
    return federation


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 5),
        ({"train": {"batch_size": 17}}, None),
        ({"partition": split_of(99)}, None),
        ({"rounds": {"count": 2, "cohort": 99}}, None),
        ({"train": {"objective": "fedprox"}}, None),
        ({"data": {"dataset": "tiny_augmented"}}, None),
        ({"model": {"name": SPEC.name}}, None),
        ({"train": {"together": None}}, None),
        ({"train": {"together": 7}}, 7),
        ({"train": {"together": 7, "batch_size": 17}}, 7),
    ],
)
def test_small_clients_that_are_many_train_together_of_themselves(
    workplace: Path, changes: dict[str, Any], expected: int | None
) -> None:
    assert group_size(many(workplace, **changes)) == expected


def test_large_networks_train_one_at_a_time(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = many(workplace)
    weights = sum(shape.numel() for shape in federation.spec.shapes().values())
    monkeypatch.setattr(training, "_FEW_WEIGHTS", weights)
    assert group_size(federation) == 5
    monkeypatch.setattr(training, "_FEW_WEIGHTS", weights - 1)
    assert group_size(federation) is None


def test_groups_are_larger_on_a_gpu(workplace: Path) -> None:
    federation = many(workplace)
    assert group_size(replace(federation, numerics=replace(federation.numerics, device="cuda"))) == 10


def test_what_is_chosen_is_what_trains(workplace: Path, groups: list[int]) -> None:
    walk_tiny(workplace, FEDAVG, partition=split_of(101), train={"batch_size": 16, "epochs": 1})
    assert groups == [5] * 20


def test_the_last_group_has_what_is_left() -> None:
    clients = (1, 4, 5, 8, 9)
    assert [group_of(clients, one, 2) for one in clients] == [(1, 4), (1, 4), (5, 8), (5, 8), (9,)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": {"objective": "fedprox"}}, r"train\.objective='fedprox', which reads the weights; allowed: null"),
        ({"train": {"objective": "moon"}}, r"train\.objective='moon', which reads .*; allowed: null"),
        ({"model": {"initialisation": "different"}}, r"model\.initialisation='different'; allowed: null"),
        ({"data": {"dataset": "tiny_augmented"}}, r"data\.dataset=tiny_augmented, whose images are cropped"),
        ({"privacy": {"epsilon": 8}}, "with privacy: its gradients are clipped"),
        ({"model": {"name": SPEC.name}}, r"model 'batch_norm': layer 'norm' has type BatchNorm"),
    ],
)
def test_what_can_t_train_together_is_refused_before_any_work(
    workplace: Path, changes: dict[str, Any], message: str
) -> None:
    changes = {**changes, "train": {**TOGETHER, **changes.get("train", {})}}
    with pytest.raises(InputError, match=rf"^train\.together=2.*{message}"):
        check_federations(tiny.tiny_settings(workplace, **changes))
    assert not list(workplace.glob("artifacts/*"))


@pytest.mark.parametrize("size", [0, 1, -3, 2.5])
def test_a_group_has_two_clients_or_more(workplace: Path, size: Any) -> None:
    with pytest.raises(InputError, match=r"train\.together"):
        tiny.tiny_settings(workplace, train={"together": size})
