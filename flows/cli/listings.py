"""`fedfisher methods`, `objectives`, `optimisers`, `datasets` and `models`: what settings can name."""

import argparse
import json

from flows.cli.options import Commands, add_command, add_json


def add_commands(commands: Commands) -> None:
    """Add a command for each kind of thing."""
    for what in ("methods", "objectives", "optimisers", "datasets", "models"):
        listing = add_command(commands, what, f"list the {what} that settings can name", what, f"{what} --json")
        add_json(listing)
        listing.set_defaults(command=_list, what=what)


def _list(options: argparse.Namespace) -> None:
    from flows import listings

    listed = {
        "methods": listings.methods,
        "objectives": listings.objectives,
        "optimisers": listings.optimisers,
        "datasets": listings.datasets,
        "models": listings.models,
    }
    entries = listed[options.what]()
    print(json.dumps(entries, indent=2) if options.json else listings.as_text(entries))
