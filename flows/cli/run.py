"""`fedfisher run`, `stage` and `explain`: run experiments, or what is left of them, and say what a run would do."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from flows import running
from flows.cli.options import PARAMS, Commands, add_command, add_config, add_json, add_overrides, settings_of
from flows.reports import REPORTS, count_rows, print_report, print_tables
from flows.stopping import end_with_parent

# DVC sets it for the commands that it starts, and does not stop them when it is killed.
_DVC_STAGE = "DVC_STAGE"


def add_commands(commands: Commands) -> None:
    """Add the commands."""
    run = add_command(
        commands,
        "run",
        "run experiments, or what is left of them; exits with 1 if jobs failed",
        "run",
        "run configs/mnist_methods.yaml configs/ablation.yaml",
        "run --set train.epochs=5 --set 'seeds=[7]'",
        "run configs/ablation.yaml --json",
    )
    add_json(run)
    run.add_argument("config", nargs="*", type=Path, default=[PARAMS], help=f"settings (default: {PARAMS})")
    add_overrides(run)
    run.set_defaults(command=_run_command)

    stage = add_command(
        commands, "stage", "run an experiment, and link what it rests on for DVC", "stage configs/ablation.yaml"
    )
    add_config(stage)
    stage.set_defaults(command=_stage)

    explain = add_command(
        commands,
        "explain",
        "say what a run would compute, send and take, and what the store has of it",
        "explain",
        "explain configs/mnist_methods.yaml --set 'seeds=[0]'",
    )
    add_json(explain)
    add_config(explain)
    explain.set_defaults(command=_explain)


def _run_command(options: argparse.Namespace) -> None:
    done: list[running.Finished] = []
    try:
        for one in running.run_files(options.config, options.overrides):
            done.append(one)
            if not options.json:
                _print(one)
    except (Exception, KeyboardInterrupt) as error:
        if options.json and done:
            # A reader that is gone must not take the place of this error.
            with suppress(BrokenPipeError):
                _print_json(done, running.code_of_error(error))
                sys.stdout.flush()
        raise
    code = running.code_of([one.error for one in done])
    if options.json:
        _print_json(done, code)
    if code:
        sys.exit(code)


def _stage(options: argparse.Namespace) -> None:
    if _DVC_STAGE in os.environ:
        end_with_parent()
    (done,) = running.run_files([options.config], options.overrides)
    _print(done)
    if done.error is None:
        from flows.sharing import link_stage
        from flows.work import prepare

        work = prepare(done.settings)
        link_stage(work.settings.name, work.artifacts())
    if code := running.code_of([done.error]):
        sys.exit(code)


def _print(done: running.Finished) -> None:
    if done.folder is not None:
        print_report(done.folder)
        print(f"MLflow: {done.settings.tracking.mlflow}, browse it with `fedfisher ui`")


def _print_json(done: Sequence[running.Finished], code: int) -> None:
    reports = [
        {
            "name": one.settings.name,
            "folder": None if one.folder is None else str(one.folder),
            "rows": 0 if one.folder is None else count_rows(one.folder),
            "failures": [] if one.error is None else [asdict(failed) for failed in one.error.failed],
        }
        for one in done
    ]
    print(json.dumps({"reports": reports, "exit": code}, indent=2))


def _explain(options: argparse.Namespace) -> None:
    from fedfisher_core.experiments.benchmark.plan import explain
    from fedfisher_core.reporting.rows import RESULTS
    from flows.work import look_up

    settings, agenda, store = look_up(settings_of(options))
    found = (folder / settings.name for folder in (settings.run.reports, *REPORTS))
    earlier = next((folder for folder in found if (folder / RESULTS).is_file()), None)
    print_tables(explain(settings, agenda, store, earlier=earlier), json=options.json)
