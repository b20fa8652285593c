"""What the README shows is what the repository has: picture, table, code, settings and commands."""

import json
import re
import statistics
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from torch import nn

from benchmarks.overview import PICTURE, above_baseline, best_effort, draw, table
from fedfisher_core.experiments.leaderboard.ranking import OverSeeds

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
EXAMPLE = ROOT / "examples/compare_your_method"
SIX = ("mnist", "fashion_mnist", "cifar10", "cifar10_mlp", "cifar10_mlp_clients", "cifar10_mlp_thirty")


@cache
def compared() -> Sequence[OverSeeds]:
    return above_baseline(best_effort(ROOT / "reports"))


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_picture_is_that_of_the_committed_reports() -> None:
    assert (ROOT / "reports" / PICTURE).read_text() == draw(compared()), "run python -m benchmarks.overview"


def test_the_table_is_that_of_the_committed_reports() -> None:
    assert f"\n\n{table(ROOT / 'reports')}\n\n" in README, "copy what python -m benchmarks.overview prints"


def test_a_mean_is_what_the_result_files_give_by_hand() -> None:
    rows = [row for name in SIX for row in json.loads((ROOT / f"reports/best_effort_{name}/results.json").read_text())]
    accuracy = {
        (row["method"], row["seed"], row["dataset"], row["model"], row["alpha"], row["num_clients"]): row["accuracy"]
        for row in rows
    }
    settings = {key[2:] for key in accuracy}
    by_seed = [
        statistics.fmean(accuracy["mats", seed, *at] - accuracy["fedavg", seed, *at] for at in settings)
        for seed in (0, 1, 2)
    ]
    # Student's quantile of 97.5 % with two degrees of freedom.
    half = 4.302653 * statistics.stdev(by_seed) / 3**0.5
    found = next(one for one in compared() if one.other == "mats")
    assert found.num_settings == len(settings) == 54
    assert found.difference.interval is not None
    expected = (statistics.fmean(by_seed), statistics.fmean(by_seed) - half, statistics.fmean(by_seed) + half)
    torch.testing.assert_close((found.difference.mean, *found.difference.interval), expected, atol=1e-6, rtol=0)


def test_merging_runs_as_it_is_written() -> None:
    names: dict[str, object] = {}
    (code,) = (block for block in python_blocks() if "import fedfisher" in block)
    with torch.random.fork_rng(devices=[]):
        exec(code, names)
    assert isinstance(names["merged"], nn.Sequential)


def test_the_method_is_that_of_the_example() -> None:
    (code,) = (block for block in python_blocks() if "@method" in block)
    assert code in (EXAMPLE / "my_median.py").read_text()


def test_files_of_commands_exist() -> None:
    ((source, copy),) = re.findall(r"^cp -r (\S+) (\S+)$", README, re.MULTILINE)
    named = re.findall(r"^\S*(?:fedfisher run|pip install -e) (\S+)$", README, re.MULTILINE)
    assert len(named) == 2
    assert all((ROOT / name.replace(copy, source)).exists() for name in named)


def test_links_lead_to_pages_that_a_git_host_shows() -> None:
    assert not re.findall(r"\]\([^)]*\.html[^)]*\)", README)


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 125
