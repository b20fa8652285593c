from pathlib import Path

import pytest

from fedfisher_core.errors import InputError
from fedfisher_core.experiments.benchmark.plan import parse_published
from fedfisher_core.experiments.benchmark.published import PublishedResult, compare, read_published
from tests.experiments.benchmark.samples import make_row

HEADER = "source,table,dataset,model,num_clients,alpha,method,accuracy_mean,accuracy_std\n"


def published(mean: float, deviation: float | None, **changes: object) -> PublishedResult:
    values: dict[str, object] = {
        "source": "a paper",
        "table": "Table 1",
        "dataset": "mnist",
        "model": "mlp",
        "num_clients": 5,
        "alpha": 0.1,
        "method": "fedavg",
        "mean": mean,
        "deviation": deviation,
    }
    return PublishedResult(**(values | changes))  # type: ignore[arg-type]


def test_reading_translates_names_and_per_cents(tmp_path: Path) -> None:
    path = tmp_path / "published.csv"
    path.write_text(
        HEADER
        + "P,Table 1,FashionMNIST,mlp,5,0.05,fedavg,49.33,4.16\r\n"
        + "P,Table 2,CIFAR10,cnn,10,0.3,dense,50,\r\n",
        newline="",
    )
    first, second = read_published(path)
    assert (first.dataset, first.num_clients, first.alpha) == ("fashion_mnist", 5, 0.05)
    assert first.mean == pytest.approx(0.4933)
    assert first.deviation == pytest.approx(0.0416)
    assert second.dataset == "cifar10"
    assert second.deviation is None


def test_the_published_file_of_the_project_is_read() -> None:
    results = read_published(Path(__file__).parents[3] / "reports" / "published_results.csv")
    assert {"mnist", "fashion_mnist", "cifar10", "svhn", "cinic10"} == {result.dataset for result in results}
    assert all(0 < result.mean < 1 for result in results)
    assert published(0.5567, 0.0283, source="FedFisher workshop 2023").mean in [
        pytest.approx(result.mean)
        for result in results
        if (result.dataset, result.num_clients, result.alpha, result.method) == ("mnist", 5, 0.1, "fedavg")
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [("source,table\na,b\n", "columns"), (HEADER + "P,T,MNIST,mlp,5,x,fedavg,1,2\n", "line 2")],
)
def test_a_broken_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "published.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_published(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no published results"):
        read_published(tmp_path / "published.csv")


def test_the_published_deviation_is_the_yardstick() -> None:
    rows = [make_row(seed=seed, accuracy=value) for seed, value in enumerate([0.5, 0.6])]
    (inside,) = compare(rows, [published(0.6, 0.04)])
    assert inside.difference == pytest.approx(-0.05)
    assert inside.deviations == pytest.approx(-1.25)
    assert inside.beyond is False
    (beyond,) = compare(rows, [published(0.6, 0.02)])
    assert beyond.deviations == pytest.approx(-2.5)
    assert beyond.beyond is True


def test_without_a_published_deviation_ours_is_used() -> None:
    rows = [make_row(seed=seed, accuracy=value) for seed, value in enumerate([0.4, 0.5, 0.6])]
    (comparison,) = compare(rows, [published(0.25, None)])
    assert comparison.deviations == pytest.approx(2.5)
    assert comparison.beyond is True


@pytest.mark.parametrize("deviation", [None, 0.0])
def test_without_any_deviation_nothing_is_claimed(deviation: float | None) -> None:
    (comparison,) = compare([make_row()], [published(0.1, deviation)])
    assert comparison.difference == pytest.approx(0.4)
    assert comparison.deviations is None
    assert comparison.beyond is None


@pytest.mark.parametrize(
    "change", [{"alpha": 0.2}, {"num_clients": 6}, {"model": "cnn"}, {"dataset": "svhn"}, {"method": "dense"}]
)
def test_other_settings_are_not_compared(change: dict[str, object]) -> None:
    assert compare([make_row()], [published(0.5, 0.1)])
    assert not compare([make_row()], [published(0.5, 0.1, **change)])


def test_several_rounds_are_not_compared() -> None:
    assert not compare([make_row(num_rounds=2)], [published(0.5, 0.1)])


def test_two_papers_give_two_comparisons() -> None:
    both = [published(0.5, 0.1), published(0.3, None, source="another paper")]
    assert [one.published.source for one in compare([make_row()], both)] == ["a paper", "another paper"]


def test_the_source_and_the_table_of_published_results_are_told_apart() -> None:
    assert parse_published("FedFisher workshop 2023, Table 1") == ("FedFisher workshop 2023", "Table 1")
    with pytest.raises(InputError, match="must have the form 'SOURCE, TABLE'"):
        parse_published("Table 1")
