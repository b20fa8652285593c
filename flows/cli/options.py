"""Options that several commands share."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from fedfisher_core.engine.errors import InputError, shortened, shown

if TYPE_CHECKING:
    from fedfisher_core.settings import ExperimentSettings

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

PARAMS = Path("params.yaml")
EXAMPLES = "examples:"
"""Begins the end of each command's help."""


def add_command(commands: Commands, name: str, summary: str, *examples: str) -> argparse.ArgumentParser:
    """Add a command whose help ends with examples, each without the program's name."""
    return commands.add_parser(
        name,
        help=summary,
        description=summary,
        epilog="\n  ".join([EXAMPLES, *(f"fedfisher {one}" for one in examples)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add one settings file, params.yaml by default, and overrides."""
    parser.add_argument("config", nargs="?", type=Path, default=PARAMS, help=f"settings (default: {PARAMS})")
    add_overrides(parser)


def add_overrides(parser: argparse.ArgumentParser, what: str = "override a setting") -> None:
    """Add --set."""
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE", help=what)


def require_values(options: argparse.Namespace, unknown: Sequence[str]) -> None:
    """Refuse a value of --set that a space separates from its key; it would be read as a settings file.

    Raises:
        InputError: names the key and the value.
    """
    configs = getattr(options, "config", [])
    missing = [str(one) for one in ([configs] if isinstance(configs, Path) else configs) if not one.exists()]
    apart = [one.lstrip("=") for one in (*missing, *unknown) if one.lstrip("=")]
    for text in getattr(options, "overrides", []):
        key, _, value = text.partition("=")
        if key and not value and apart and apart != [str(PARAMS)]:
            raise InputError(
                f"--set {shown(text)} has no value, and {shown(apart[0])} stands apart from it; allowed: key=value "
                f"without spaces, as in --set {shortened(key)}={shortened(apart[0])}"
            )


def settings_of(options: argparse.Namespace) -> "ExperimentSettings":
    """Read the settings file and apply the overrides."""
    from fedfisher_core.experiments.contract import load

    return load(options.config, options.overrides)
