"""`fedfisher doctor` and `methods` to `models`: what is installed, and what settings can name."""

import argparse
import json
import sys

from fedfisher_core.engine.errors import printable_lines
from flows.cli.options import Commands, add_command, add_config, add_json, settings_of


def add_commands(commands: Commands) -> None:
    """Add the commands."""
    doctor = add_command(
        commands,
        "doctor",
        "say what is installed, found and reachable",
        "doctor",
        "doctor configs/mnist_methods.yaml --json",
    )
    add_json(doctor)
    add_config(doctor)
    doctor.set_defaults(command=_doctor)

    for what in ("methods", "objectives", "optimisers", "datasets", "models"):
        listing = add_command(commands, what, f"list the {what} that settings can name", what, f"{what} --json")
        add_json(listing)
        listing.set_defaults(command=_list, what=what)


def _doctor(options: argparse.Namespace) -> None:
    from flows.doctor import examine

    found = examine(settings_of(options))
    print(found.as_json() if options.json else "\n".join(map(printable_lines, found.lines())))
    if not found.ready:
        sys.exit(1)


def _list(options: argparse.Namespace) -> None:
    from flows import listings

    entries = getattr(listings, options.what)()
    print(json.dumps(entries, indent=2) if options.json else listings.as_text(entries))
