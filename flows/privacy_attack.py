"""The privacy attack: what a server reconstructs of one client's images through each method.

the tasks of a benchmark ─┬─ train the prior ──────┬─ attack client 0 through fedavg ─────────┬─ report ─ record
                          └─ train the evaluator ──┴─ attack client 0 through fedfisher_kfac ─┘
"""

from fedfisher_core.experiments.privacy_attack.settings import AttackSettings
from flows.experiment import experiment_flow, resolve_settings, run_experiment

DEFAULT = AttackSettings()


@experiment_flow
def privacy_attack(settings: AttackSettings = DEFAULT, config: str | None = None) -> str:
    """Train federations, attack one client through every method, report and record.

    Args:
        settings: all that is compared and how.
        config: name of a file in configs/, such as few_shot, that takes the place of the settings.
    """
    return run_experiment(resolve_settings(settings, config, default=DEFAULT))
