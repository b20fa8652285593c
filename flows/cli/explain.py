"""`fedfisher explain`: what a run would do, without doing it."""

import argparse

from flows.cli.options import Commands, add_command, add_config, add_json, settings_of
from flows.output import REPORTS, print_tables


def add_commands(commands: Commands) -> None:
    """Add the command."""
    explain = add_command(
        commands,
        "explain",
        "say what a run would compute, send and take, and what the store has of it",
        "explain",
        "explain configs/mnist_methods.yaml --set seeds=[0]",
    )
    add_json(explain)
    add_config(explain)
    explain.set_defaults(command=_explain)


def _explain(options: argparse.Namespace) -> None:
    from fedfisher_core.experiments.benchmark.explaining import explain
    from fedfisher_core.reporting.rows import RESULTS
    from flows.work import prepare

    work = prepare(settings_of(options))
    found = (folder / work.settings.name for folder in REPORTS)
    earlier = next((folder for folder in found if (folder / RESULTS).is_file()), None)
    print_tables(explain(work.settings, work.agenda, work.store, earlier=earlier), json=options.json)
