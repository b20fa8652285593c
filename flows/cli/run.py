"""`fedfisher run` and `fedfisher stage`: run experiments, or what is left of them."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fedfisher_core.engine.errors import IncompleteError
from flows import running
from flows.cli.options import PARAMS, Commands, add_command, add_config, add_overrides
from tasks.lifeline import end_with_parent

# DVC sets it for the commands that it starts, and does not stop them when it is killed.
_DVC_STAGE = "DVC_STAGE"


def add_commands(commands: Commands) -> None:
    """Add both commands."""
    run = add_command(
        commands,
        "run",
        "run experiments, or what is left of them; exits with 1 if jobs failed",
        "run",
        "run configs/mnist_methods.yaml configs/ablation.yaml",
        "run --set train.epochs=5 --set seeds=[7]",
    )
    run.add_argument("config", nargs="*", type=Path, default=[PARAMS], help=f"settings (default: {PARAMS})")
    add_overrides(run)
    run.set_defaults(command=_run)

    stage = add_command(
        commands, "stage", "run an experiment, and link what it rests on for DVC", "stage configs/ablation.yaml"
    )
    add_config(stage)
    stage.set_defaults(command=_stage)


def _run(options: argparse.Namespace) -> None:
    _exit_for(running.run(options.config, options.overrides))


def _stage(options: argparse.Namespace) -> None:
    if _DVC_STAGE in os.environ:
        end_with_parent()
    _exit_for(running.run_stage(options.config, options.overrides))


def _exit_for(incomplete: Sequence[IncompleteError]) -> None:
    if incomplete:
        sys.exit(running.code_of(incomplete))
