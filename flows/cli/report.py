"""`fedfisher report`, `compare`, `leaderboard` and `submit`: what finished benchmarks have found."""

import argparse
import sys
from pathlib import Path

from flows.cli.options import Commands, add_command, add_config, add_json, settings_of
from flows.reports import REPORTS, draw_page, find_report, print_report, print_tables

_LEADERBOARD = Path("results/leaderboard")


def add_commands(commands: Commands) -> None:
    """Add the commands."""
    report = add_command(
        commands,
        "report",
        "print the table of a finished benchmark and where its report is",
        "report demo",
        "report mnist_methods --reports reports --json",
    )
    add_json(report)
    report.add_argument("name", help="the benchmark's name, a folder of the reports")
    report.add_argument("--reports", type=Path, help="folder of reports (default: results, then reports)")
    report.add_argument("--page", action="store_true", help="make its page again first, from the files in its folder")
    report.set_defaults(command=_report)

    compare = add_command(
        commands,
        "compare",
        "compare two methods in pairs, over all settings and seeds that both have",
        "compare fedfisher_kfac regmean",
        "compare gaussian_distillation fedavg best_effort_mnist best_effort_cifar10 --json",
    )
    compare.add_argument("first", help="a method, as the leaderboard names it")
    compare.add_argument("second", help="the method that is subtracted")
    compare.add_argument("name", nargs="*", help="names of reports (default: all)")
    add_json(compare)
    compare.set_defaults(command=_compare)

    board = add_command(
        commands,
        "leaderboard",
        "make one page, table and MLflow run of all reports",
        "leaderboard",
        "leaderboard --reports reports --out reports/leaderboard",
    )
    add_json(board)
    board.add_argument(
        "--reports",
        type=Path,
        nargs="+",
        metavar="FOLDER",
        help="folders of reports (default: results, reports and leaderboard/entries)",
    )
    board.add_argument("--out", type=Path, default=_LEADERBOARD, help=f"folder to write (default: {_LEADERBOARD})")
    add_config(board)
    board.set_defaults(command=_leaderboard)

    submit = add_command(
        commands,
        "submit",
        "check results, compute one of their rows again, and write an entry for the leaderboard",
        "submit results/my_method my_method/compare.yaml",
    )
    submit.add_argument("results", type=Path, help="folder of the report, with results.json")
    add_config(submit)
    submit.set_defaults(command=_submit)


def _report(options: argparse.Namespace) -> None:
    folders = REPORTS if options.reports is None else (options.reports,)
    folder = find_report(options.name, folders)
    if options.page:
        draw_page(folder)
    print_report(folder, json=options.json)


def _compare(options: argparse.Namespace) -> None:
    from fedfisher_core.experiments.leaderboard.entries import read_benchmark, read_reports
    from fedfisher_core.experiments.leaderboard.ranking import common_settings, comparison_tables

    named = [read_benchmark(find_report(name, REPORTS)) for name in dict.fromkeys(options.name)]
    read = named or read_reports(_folders()).benchmarks
    compared = common_settings(read, options.first, options.second)
    print_tables(comparison_tables(compared, options.first, options.second), json=options.json)


def _folders() -> list[Path]:
    from fedfisher_core.experiments.leaderboard.entries import ENTRIES

    return [folder for folder in (*REPORTS, ENTRIES) if folder.is_dir()]


def _leaderboard(options: argparse.Namespace) -> None:
    tracking = settings_of(options).tracking
    from flows.leaderboard import make_leaderboard

    print_tables(make_leaderboard(options.reports or _folders(), options.out, tracking), json=options.json)
    if options.json:
        return
    print(f"\nleaderboard: {options.out / 'index.html'}")
    print(f"MLflow: {tracking.mlflow}, browse it with `fedfisher ui`")


def _submit(options: argparse.Namespace) -> None:
    from fedfisher_core.experiments.contract import own_name
    from fedfisher_core.experiments.leaderboard.submissions import submit

    print("computing one of the rows again, from the data on", file=sys.stderr)
    print(submit(options.results, own_name(settings_of(options))))
