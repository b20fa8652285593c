"""The benchmark: clients train once, every method aggregates what they send, and the networks are compared.

    decode ─ split ─┬─ train client 0 ─ statistics ─ encode ─┬─ aggregate fedavg ───────── evaluate ─┬─ report ─ record
                    ├─ train client 1 ─ statistics ─ encode ─┼─ aggregate fedfisher_kfac ─ evaluate ─┤
                    └─ ...                                   └─ ...                                  ┘

The jobs are in `fedfisher_core/federation`, the tasks in `tasks/`, and `flows/submitting.py` turns jobs into tasks.
"""

from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from flows.experiment import experiment_flow, resolve_settings, run_experiment

DEFAULT = BenchmarkSettings()


@experiment_flow
def benchmark(settings: BenchmarkSettings = DEFAULT, config: str | None = None) -> str:
    """Train clients, compute their statistics, aggregate by every method, evaluate, report and record.

    Args:
        settings: all that is compared and how; those of params.yaml where none are given.
        config: name of a file in configs/, such as few_shot, that takes the place of the settings.
    """
    return run_experiment(resolve_settings(settings, config, default=DEFAULT))
