"""What is refused of federations before any work starts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.benchmark.plan import make_plan
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.jobs import Federations
from fedfisher_core.models.spec import ModelSpec, model
from tests.tiny import tiny_settings


@model("grouped_filters")
class GroupedFilters(nn.Module):
    """A network that can be trained but has no Fisher."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.first = nn.Conv2d(spec.inputs.channels, 2, kernel_size=3)
        self.second = nn.Conv2d(2, 2, kernel_size=3, groups=2)
        self.head = nn.Linear(2 * (spec.inputs.height - 4) ** 2, spec.classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(functional.relu(self.second(functional.relu(self.first(inputs)))).flatten(1))


def check(folder: Path, **changes: Any) -> Federations:
    return check_federations(tiny_settings(folder, **changes))


def test_a_network_that_a_method_can_not_serve_may_be_left_to_others(workplace: Path) -> None:
    methods = {"fedavg": {}, "ma_echo": {"only": {"model": "tiny"}}}
    models = {"name": ["tiny", "grouped_filters"]}
    with pytest.raises(InputError, match="method 'ma_echo' can't serve model 'grouped_filters'"):
        check(workplace, model=models, methods={"fedavg": {}, "ma_echo": {}})
    assert len(check(workplace, model=models, methods=methods).all) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"lora": {"rank": 4}}}, r"model\.lora=.*'rank': 4.*, but no network with adapters .*\['tiny'\]"),
        ({"data": {"text": {"length": 7}}}, r"data\.text=.*'length': 7.*, but no texts are among data\.dataset="),
        (
            {"train": {"objective": {"fedprox": {"mu": "1e40"}}}},
            r"train\.objective\.fedprox.*1e\+40 is among them; allowed: from -1e\+30 to 1e\+30",
        ),
    ],
)
def test_settings_without_effect_or_beyond_all_bounds_are_refused(
    workplace: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        check(workplace, **changes)


@pytest.mark.parametrize("name", ["ties", "dare", "iso_c", "tsv_m", "wudi", "gradient_matching", "fipa"])
def test_what_clients_changed_of_one_start_needs_that_start(workplace: Path, name: str) -> None:
    message = rf"model\.initialisation='different', but method '{name}' .* all clients started from; allowed: 'same'"
    with pytest.raises(InputError, match=message):
        check(workplace, model={"initialisation": "different"}, methods={"fedavg": {}, name: {}})
    check(workplace, methods={name: {}})


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ({"seed": 7}, r"methods\.fedavg\.only\.seed=7 is not in the benchmark; allowed: 0"),
        ({"seeds": [0]}, r"unknown setting 'methods\.fedavg\.only\.seeds'; did you mean 'seed'"),
        ({"seed": []}, r"methods\.fedavg\.only=\{'seed': \[\]\} leaves no setting of the benchmark"),
        ("seed=0", r"methods\.fedavg\.only='seed=0': must be a mapping"),
        ({"clients": "many"}, r"methods\.fedavg\.only\.clients\.0='many'"),
    ],
)
def test_a_restriction_to_nowhere_is_refused(workplace: Path, only: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check(workplace, methods={"fedavg": {"only": only}})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ["fedavg", "regmeen"]}, "unknown method 'regmeen'; did you mean 'regmean'"),
        (
            {"methods": {"fedavg": {"method": "fedfisher_diag"}}},
            "methods.fedavg.method=fedfisher_diag: readers would take it for 'fedavg', which is a method too; allowed:",
        ),
        ({"methods": {"regmean": {"of_diagonal": 1}}}, "unknown setting 'methods.regmean.of_diagonal'; did you mean"),
        (
            {"methods": {"fedavg": {"steps": 1}}},
            "unknown setting 'methods.fedavg.steps'; allowed: label_prior, method, only, wire",
        ),
        (
            {"methods": {"fedfisher_diag": {"solver": {"name": "paper", "steps": 0}}}},
            "methods.fedfisher_diag.solver.paper.steps=0: ",
        ),
        (
            {"methods": ["fedfisher_kfac"], "wire": {"budget": 1000}},
            "method 'fedfisher_kfac' can't serve model 'tiny': wire.budget=1000, wire.format=fedfisher: the budget is",
        ),
        (
            {"methods": ["fedfisher_kfac"], "fisher": {"memory_mib": 1}},
            "fisher.memory_mib=1 is too little for kfac of one example of model 'tiny'; allowed: at least 9",
        ),
        (
            {"methods": ["fedfisher_full"], "fisher": {"backend": "nngeometry"}},
            "fisher.backend='nngeometry' has no full Fisher, which method 'fedfisher_full' needs",
        ),
        ({"methods": {"fisher_merge": {"fisher_floor": -1}}}, "methods.fisher_merge.fisher_floor=-1: "),
        ({"statistics": {"kfack": {}}}, "unknown statistic 'kfack'; did you mean 'kfac'?"),
        ({"statistics": {"kfac": {"rank": 2}}}, "unknown setting 'statistics.kfac.rank'"),
        ({"data": {"dataset": "tinny"}}, "unknown dataset 'tinny'; did you mean 'tiny'"),
        (
            {"partition": {"scheme": "target", "target_label": 3, "target_extra": 1, "alpha": [0.5]}},
            "partition.target_label=3: tiny has no such label; allowed: 0 to 2",
        ),
        ({"model": {"name": "lennet"}}, "unknown model 'lennet'; did you mean 'lenet'"),
        ({"model": {"name": "lenet"}}, "model 'lenet' needs images of at least 16x16 pixels; they have 6"),
        (
            {"model": {"name": "normalised"}, "methods": ["fedfisher_kfac"]},
            "model 'normalised': layer 'norm' has type BatchNorm2d, whose statistics of batches no client sends",
        ),
        ({"run": {"min_clients": 4}}, "run.min_clients=4 exceeds partition.clients=3"),
        ({"run": {"min_clients": 3}, "rounds": {"cohort": 2}}, "run.min_clients=3 exceeds rounds.cohort=2"),
        (
            {"methods": {"otfusion": {"pivot": 2}}, "rounds": {"cohort": 2}},
            "method 'otfusion': pivot=2: allowed: 0 to 1",
        ),
        (
            {"run": {"min_clients": 4}, "partition": {"clients": [5, 3]}},
            "run.min_clients=4 exceeds partition.clients=3",
        ),
    ],
)
def test_bad_settings_are_refused_by_name(workplace: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        check(workplace, **changes)
    assert message in str(caught.value)
    assert not (workplace / "artifacts").exists()


def test_fishers_have_the_memory_of_the_device_that_computes_them(workplace: Path) -> None:
    (federation,) = make_plan(tiny_settings(workplace, methods={"fedfisher_diag": {}})).federations.all
    assert federation.fisher.memory_mib == 256
    assert replace(federation, numerics=replace(federation.numerics, device="cuda")).fisher.memory_mib == 4096


def test_a_gpu_that_is_not_there_is_refused(workplace: Path) -> None:
    if torch.cuda.is_available():
        assert check(workplace, run={"device": "cuda"}).all[0].device.type == "cuda"
        return
    with pytest.raises(InputError, match=r"run\.device='cuda', but torch finds no GPU; allowed here: auto, cpu"):
        check(workplace, run={"device": "cuda"})


def test_a_data_folder_that_is_none_is_refused(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(workplace / "absent"))
    with pytest.raises(InputError, match="FEDFISHER_DATA_DIR="):
        check(workplace)


SECURE = {"budget": "none", "server_view": "secure_sum"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"validation_size": 121}}, r"data\.validation_size=121 exceeds the 120 training examples"),
        (
            {"data": {"examples": 50, "validation_size": 51}},
            r"data\.validation_size=51 exceeds the 50 training examples",
        ),
        (
            {"data": {"examples": 100, "held_out": 30}},
            r"data set 'tiny': data\.examples=100 with data\.held_out=30 needs 130 training examples; there are 120",
        ),
        ({"partition": {"min_size": 41}}, r"partition\.min_size=41 needs 123 training examples; there are 120"),
        ({"partition": {"scheme": "classes", "classes_per_client": 4}}, "classes_per_client=4 exceeds the 3 classes"),
        (
            {"partition": {"scheme": "classes", "classes_per_client": 1, "clients": [2]}},
            "leaves classes without a client",
        ),
        ({"partition": {"scheme": "target", "target_label": 0, "target_extra": 80}}, "at most 79"),
        ({"partition": {"scheme": "target", "target_label": 0, "target_extra": 1, "clients": [1]}}, "at least 2"),
        (
            {"partition": {"scheme": "column", "column": "marker"}},
            r"partition\.column='marker': split 'train' of data set 'tiny' has no such column; allowed: .*maker",
        ),
        ({"partition": {"scheme": "column", "column": "maker", "clients": [8]}}, "exceeds the 7 values"),
        ({"partition": {"scheme": "largest", "column": "maker", "clients": [8]}}, "exceeds the 7 values"),
        (
            {
                "partition": {"scheme": "largest", "column": "maker", "clients": [2]},
                "data": {"dataset": "tiny", "validation_size": 36},
            },
            r"data\.validation_size=36 exceeds the 35 training examples that clients hold, with the 2 largest values",
        ),
        ({"wire": {**SECURE, "secure": {"threshold": 4}}}, r"wire\.secure\.threshold=4 with 3 clients"),
        ({"wire": {**SECURE, "secure": {"dropouts": {3: "keys"}}}}, r"dropouts names clients \[3\]; allowed: 0 to 2"),
        (
            {"wire": {**SECURE, "secure": {"dropouts": {0: "unmasking", 1: "keys"}}}},
            r"1 of 3 clients stay to the end \(survivors: \[2\]\); allowed: wire\.secure\.threshold=2 or more",
        ),
        ({"methods": {"fedfish": {"global_step": float("inf")}}}, r"methods\.fedfish\.global_step=inf"),
        ({"methods": {"dense": {"epochs": 10**12}}}, r"1000000000000 is among them; allowed: from -1e\+09 to 1e\+09"),
        ({"methods": {"otfusion": {"pivot": 3}}}, r"method 'otfusion': pivot=3: allowed: 0 to 2"),
        ({"methods": {"ma_echo_ot": {"pivot": 3}}}, r"method 'ma_echo_ot': pivot=3: allowed: 0 to 2"),
        *(
            (
                {"data": {"validation_size": 0}, "methods": {"mine": entry}},
                "validation_size=0, but method 'mine' selects",
            )
            for entry in (
                {"method": "regmean"},
                {"method": "otfusion"},
                {"method": "otfusion", "correction": [True], "past_correction": [True], "ground_metric": "activations"},
                {"method": "fedfisher_kfac", "solver": "paper"},
                {"method": "fedfisher_diag", "solver": {"name": "gradient_descent", "select": True}},
            )
        ),
    ],
)
def test_what_no_run_could_end_with_is_refused_before_any_work(
    workplace: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        check(workplace, **changes)
    assert list(workplace.iterdir()) == []


def test_a_restricted_method_does_not_ask_for_more_where_it_does_not_run(workplace: Path) -> None:
    methods = {"fedavg": {}, "otfusion": {"pivot": 3, "only": {"clients": 4}}}
    assert check(workplace, methods=methods, partition={"clients": [3, 4]}).all


def test_data_that_is_no_table_is_refused_before_any_work(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = workplace / "sets" / "tiny"
    folder.mkdir(parents=True)
    for split in ("train", "test"):
        (folder / f"{split}.parquet").write_text("no table")
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(workplace / "sets"))
    with pytest.raises(InputError, match=r"split 'train' of data set 'tiny' can't be read .*sets/tiny/train.parquet"):
        check(workplace)


def test_an_entry_of_skip_that_leaves_nothing_out_is_told(workplace: Path, caplog: pytest.LogCaptureFixture) -> None:
    skipped = [{"alpha": 0.1, "clients": 3}, {"alpha": 0.3}]
    partition = {"alpha": [0.1, 0.5], "clients": [3]}
    made = check_federations(tiny_settings(workplace, partition=partition, skip=skipped))
    assert [federation.setting.alpha for federation in made.all] == [0.5]
    assert caplog.messages == ["skip[1]={'alpha': [0.3]} fits no setting of the experiment, and leaves nothing out"]


def test_a_delta_that_allows_to_publish_an_example_is_warned_of(
    workplace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    check(workplace, privacy={"epsilon": 8, "delta": 1e-6})
    assert not caplog.messages
    check(workplace, privacy={"epsilon": 8, "delta": 0.5})
    (said,) = caplog.messages
    assert said.startswith("privacy.delta=0.5: clients hold about ")
