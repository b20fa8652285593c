from pathlib import Path

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.benchmark.plan import make_plan
from fedfisher_core.experiments.benchmark.published import COLUMNS, Metric, published_tables, read_published
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.settings import ReportSettings

HEADER = ",".join(COLUMNS) + "\n"


def test_reading_translates_names_and_per_cents(tmp_path: Path) -> None:
    path = tmp_path / "published.csv"
    path.write_text(
        HEADER
        + "P,Table 1,FashionMNIST,mlp,paper,5,0.05,fedavg,accuracy,49.33,4.16,,\r\n"
        + "P,Table 2,CIFAR10,cnn,iid,10,0.3,dense,accuracy,50,,3,\r\n"
        + "P,Table 3,MNIST,mlp,paper,,,fedavg,client_seconds,18.7,,,clients are not stated\r\n",
        newline="",
    )
    first, second, third = read_published(path)
    assert (first.dataset, first.num_clients, first.alpha) == ("fashion_mnist", 5, 0.05)
    assert first.mean == pytest.approx(0.4933)
    assert first.deviation == pytest.approx(0.0416)
    assert (first.partition, first.repeats) == ("paper", None)
    assert (second.dataset, second.partition, second.repeats) == ("cifar10", "iid", 3)
    assert second.deviation is None
    assert (third.metric, third.mean) == (Metric.CLIENT_SECONDS, 18.7)
    assert (third.num_clients, third.alpha, third.note) == (None, None, "clients are not stated")


def test_the_published_file_of_the_project_is_read() -> None:
    results = read_published(Path(__file__).parents[3] / "reports" / "published_results.csv")
    accuracies = [result for result in results if result.metric is Metric.ACCURACY]
    assert {"mnist", "fashion_mnist", "cifar10", "svhn", "cinic10"} <= {result.dataset for result in accuracies}
    assert all(0 < result.mean < 1 for result in accuracies)
    by_source = {result.source: result for result in reversed(accuracies)}
    # The workshop paper's tables have deviations and not the number of runs; the other's are the reverse.
    workshop, echo = by_source["FedFisher workshop 2023"], by_source["MA-Echo 2022"]
    assert (workshop.partition, workshop.repeats) == ("paper", None)
    assert (echo.partition, echo.repeats, echo.deviation) == ("dirichlet_class", 3, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("source,table\na,b\n", "columns"),
        (HEADER + "P,T,MNIST,mlp,iid,5,x,fedavg,accuracy,1,2,,\n", "line 2"),
        (HEADER + "P,T,MNIST,mlp,iid,5,1,fedavg,accuracy,1,2,1,\n", "line 2: repeats=1 .* at least 2"),
        (HEADER + "P,T,MNIST,mlp,iid,5,1,fedavg,accuracy,1,,0,\n", "line 2: repeats=0 .* at least 1"),
        (HEADER + "P,T,MNIST,mlp,,5,1,fedavg,accuracy,1,,,\n", "line 2: partition=''; allowed: dirichlet_client, "),
        (HEADER + "P,T,MNIST,mlp,iid,5,1,fedavg,speed,1,,,\n", "line 2: metric='speed'; allowed: accuracy, "),
        (HEADER + "P,T,MNIST,mlp,iid,,1,fedavg,accuracy,1,,,\n", "line 2: num_clients is empty"),
    ],
)
def test_a_broken_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "published.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_published(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no published results"):
        read_published(tmp_path / "published.csv")


def test_tables_are_found_by_name(tmp_path: Path) -> None:
    path = tmp_path / "published.csv"
    rows = [
        f"{source},{table},MNIST,mlp,iid,5,1,fedavg,{metric},50,,,"
        for source in ("P", "Q")
        for table, metric in (
            ("T 1", "accuracy"),
            ("T 2", "accuracy"),
            ("T 2", "server_seconds"),
            ("T 3", "parameters"),
        )
    ]
    path.write_text(HEADER + "\n".join(rows) + "\n")
    assert [(one.source, one.table) for one in published_tables(path, ["Q, T 2", "P,T 1"])] == [
        ("P", "T 1"),
        ("Q", "T 2"),
    ]
    with pytest.raises(InputError, match="'T 1' must have the form 'SOURCE, TABLE'"):
        published_tables(path, ["T 1"])
    with pytest.raises(InputError, match=r"'P, T 3' has no accuracies in .*; allowed: P, T 1; P, T 2; Q, T 1; Q, T 2"):
        published_tables(path, ["P, T 1", "P, T 3"])
    assert published_tables(tmp_path / "absent.csv", []) == []


def test_a_table_that_is_not_there_is_refused_before_any_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    settings = BenchmarkSettings(report=ReportSettings(published=["A paper, Table 1"]))
    with pytest.raises(InputError, match=r"no published results at reports/published_results\.csv"):
        make_plan(settings)
