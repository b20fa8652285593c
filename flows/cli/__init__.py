"""The `fedfisher` command."""

import argparse
import errno
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

from fedfisher_core.engine.errors import (
    CorruptArtifactError,
    DivergedClientError,
    IncompleteError,
    InputError,
    OutputError,
    printable_lines,
)
from fedfisher_core.engine.installed import packages_of, require_packages
from flows import running
from flows.cli import init, installed, networks, report, run, store, ui
from flows.cli.options import Commands, add_command, require_values
from flows.garbage import exit_without_collecting
from flows.stopping import leave, told_to_stop
from flows.terminal import output_is_full, reader_is_gone

# Prefect reports failures only, not every task. A temporary server that is stopped while it writes an event would print
# a hundred lines about it; no result rests on that event.
_ENVIRONMENT = {
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    # After a stopped command, it only reports that it cleans up.
    "PYTHONWARNINGS": "ignore:resource_tracker:UserWarning",
}

_ALONE = (
    "init",
    "completion",
    "statistics",
    "merge",
    "export",
    "methods",
    "objectives",
    "optimisers",
    "datasets",
    "models",
)
"""Commands that need no package of the extra `benchmark`."""


_IN_ONE_LINE = (InputError, DivergedClientError, IncompleteError, OutputError, CorruptArtifactError)
"""Errors whose message says all; Python prints any other with its traceback."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit.

    The code is 0 for complete success, 2 for bad input, 130 after Ctrl-C, 143 after SIGTERM, and 1 for any other
    failure. If jobs of a run failed, it is 2 where bad input or diverged clients explain all failures, and 1 otherwise.

    Args:
        arguments: of the command line; None for the process's own.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if sys.stderr is None:
        # Standard error was closed, which libraries that write to it do not expect.
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - it stays open until the end.
    exit_without_collecting()
    parser = _parser()
    options, unknown = parser.parse_known_args(arguments)
    try:
        require_values(options, unknown)
        if unknown:
            parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        if options.asked not in _ALONE:
            require_packages(*packages_of("benchmark"), extra="benchmark", who=f"fedfisher {options.asked}")
        options.command(options)
        if sys.stdout is not None:
            # A reader that is gone is noticed here, and not when Python exits.
            sys.stdout.flush()
    except KeyboardInterrupt as stop:
        leave(stop)
    except Exception as error:
        # Foreign code may have turned a stop into another error, which is no failure.
        if (stopped := told_to_stop()) is not None:
            leave(stopped)
        if isinstance(error, BrokenPipeError) and reader_is_gone():
            sys.exit(1)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC and output_is_full():
            print("fedfisher: standard output can't be written: no space is left on its disk", file=sys.stderr)
            sys.exit(1)
        if not isinstance(error, _IN_ONE_LINE):
            raise
        print(f"fedfisher: {printable_lines(error)}", file=sys.stderr)
        sys.exit(running.code_of_error(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fedfisher", description="A benchmark of one-shot federated learning")
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('fedfisher')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="asked")
    for module in (init, run, report, store, ui, installed, networks):
        module.add_commands(commands)
    _add_completion(parser, commands)
    return parser


def _add_completion(parser: argparse.ArgumentParser, commands: Commands) -> None:
    """Add the command, which completes all others of a parser."""
    completion = add_command(
        commands,
        "completion",
        "print what a shell needs to complete the command",
        'completion bash > "${XDG_DATA_HOME:-$HOME/.local/share}/bash-completion/completions/fedfisher"',
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    completion.set_defaults(command=lambda options: _print_completion(parser, options.shell))


def _print_completion(parser: argparse.ArgumentParser, shell: str) -> None:
    import shtab

    for action in _actions(parser):
        if action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _actions(inner)
