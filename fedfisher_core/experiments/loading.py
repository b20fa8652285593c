"""How the settings of an experiment are read from a configuration file and the command line."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from fedfisher_core.configuration import override, read_file, validate
from fedfisher_core.errors import InputError, shown
from fedfisher_core.experiments.contract import experiments
from fedfisher_core.settings import ExperimentSettings

E = TypeVar("E", bound=ExperimentSettings)

PARAMS = Path("params.yaml")
"""The default experiment, which DVC reproduces."""

DEFAULT = "benchmark"
"""The experiment of a file that names none."""


def load(config: Path, overrides: Sequence[str] = ()) -> ExperimentSettings:
    """Read the configuration file of an experiment and apply overrides.

    Args:
        config: a YAML file; keys that it leaves out have their defaults.
        overrides: `key=value` each, with a dotted key and a YAML value. Overridden settings get a name of their
            own (the file's name and a digest) so that their results never replace the file's; `name=...` sets it.

    Returns:
        The settings.

    Raises:
        InputError: the file can't be read, nobody knows its experiment, or a key or value is not allowed; it names the
            file, the key, the value and what is allowed.
    """
    content = read_file(config)
    with named(config):
        model = experiments.get(str(content.get("experiment", DEFAULT))).settings
        original = validate(model, content)
    # The file may list the methods or leave them out; an override of one method's settings keeps the others.
    written: dict[str, Any] = original.model_dump(mode="json")
    content |= {name: written[name] for name in original.named_groups()}
    for text in overrides:
        if text.partition("=")[0].strip() == "experiment":
            raise InputError(f"--set {text}: another experiment has other settings; allowed: in a file of its own")
        override(content, text)
    with named(config, overrides):
        return name_apart(validate(model, content), original)


@contextmanager
def named(config: Path, overrides: Sequence[str] = ()) -> Iterator[None]:
    """Have bad input that is found inside name the file that the settings are from.

    Args:
        config: the configuration file.
        overrides: of the command line; where there are any, the message says that the value may be theirs.
    """
    try:
        yield
    except InputError as error:
        place = f"config {shown(str(config))}{' with --set' if overrides else ''}"
        raise InputError("\n".join(f"{place}: {line}" for line in str(error).splitlines())) from error


def is_default(settings: ExperimentSettings) -> bool:
    """Say whether these are the settings that the DVC pipeline reproduces.

    Args:
        settings: of any experiment.

    Returns:
        Whether they equal params.yaml.
    """
    return PARAMS.is_file() and settings == load(PARAMS)


def own_name(settings: E) -> E:
    """Keep other settings from writing over the results of params.yaml.

    Args:
        settings: of any experiment.

    Returns:
        The same settings; where they differ from params.yaml but bear its name, with a digest added to it.

    Raises:
        InputError: they bear its name and are of another experiment.
    """
    if not PARAMS.is_file():
        return settings
    default = load(PARAMS)
    if settings.name == default.name and settings.experiment != default.experiment:
        raise InputError(
            f"name={settings.name!r} is that of {PARAMS}, whose report this would replace; allowed: others"
        )
    return name_apart(settings, default)


def name_apart(changed: E, original: ExperimentSettings) -> E:
    """Give changed settings a name of their own, so that their results never replace the original's.

    Args:
        changed: the settings.
        original: others.

    Returns:
        The changed settings; where they differ but bear the same name, with a digest added to it.
    """
    if changed.name == original.name and changed != original:
        return changed.model_copy(update={"name": f"{changed.name[:190]}-{changed.digest()}"})
    return changed
