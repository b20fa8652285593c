"""`fedfisher completion`: what a shell needs to complete the command."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from flows.cli.options import Commands, add_command

_SHELLS = ("bash", "zsh", "fish")


def add_command_for(parser: argparse.ArgumentParser, commands: Commands) -> None:
    """Add the command, which completes all others of a parser."""
    completion = add_command(
        commands,
        "completion",
        "print what a shell needs to complete the command",
        'completion bash > "${XDG_DATA_HOME:-$HOME/.local/share}/bash-completion/completions/fedfisher"',
    )
    completion.add_argument("shell", choices=_SHELLS)
    completion.set_defaults(command=lambda options: _print(parser, options.shell))


def _print(parser: argparse.ArgumentParser, shell: str) -> None:
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
