"""`fedfisher submit`: results of one's own for the leaderboard."""

import argparse
import sys
from pathlib import Path

from flows.cli.options import Commands, add_command, add_config, settings_of


def add_commands(commands: Commands) -> None:
    """Add the command."""
    submit = add_command(
        commands,
        "submit",
        "check results, compute one of their rows again, and write an entry for the leaderboard",
        "submit results/my_method my_method/compare.yaml",
    )
    submit.add_argument("results", type=Path, help="folder of the report, with results.json")
    add_config(submit)
    submit.set_defaults(command=_submit)


def _submit(options: argparse.Namespace) -> None:
    from fedfisher_core.experiments.leaderboard.submissions import submit
    from fedfisher_core.experiments.loading import own_name

    print("computing one of the rows again, from the data on", file=sys.stderr)
    print(submit(options.results, own_name(settings_of(options))))
