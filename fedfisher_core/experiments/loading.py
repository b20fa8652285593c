"""Reading the settings of an experiment from a configuration file and the command line."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from fedfisher_core.engine.errors import InputError, shown
from fedfisher_core.experiments.contract import experiments
from fedfisher_core.settings import ExperimentSettings
from fedfisher_core.settings.reading import override, read_file, validate

E = TypeVar("E", bound=ExperimentSettings)

PARAMS = Path("params.yaml")
"""The default experiment."""

DEFAULT = "benchmark"
"""The experiment of a file that does not name one."""


def load(config: Path, overrides: Sequence[str] = ()) -> ExperimentSettings:
    """Read the configuration file of an experiment and apply overrides.

    Args:
        config: a YAML file; keys that it leaves out have their defaults.
        overrides: each `key=value`, with a dotted key and a YAML value. Unless one is `name=...`, the changed settings
            get a new name, the file's with a digest, so that their results never replace the file's.

    Raises:
        InputError: the file can't be read, its experiment is unknown, or a key or value is not allowed. The message
            names the file, the key, the value and what is allowed.
    """
    content = read_file(config)
    with named(config):
        model = experiments.get(str(content.get("experiment", DEFAULT))).settings
        original = validate(model, content)
    # The file may leave the methods out. An override of one method's settings must keep the other methods.
    written: dict[str, Any] = original.model_dump(mode="json")
    content |= {name: written[name] for name in original.named_groups()}
    for text in overrides:
        if text.partition("=")[0].strip() == "experiment":
            raise InputError(f"--set {text}: another experiment has other settings; allowed: in a separate file")
        override(content, text)
    with named(config, overrides):
        return name_apart(validate(model, content), original)


@contextmanager
def named(config: Path, overrides: Sequence[str] = ()) -> Iterator[None]:
    """Prefix messages of `InputError` with the file that the settings come from.

    Args:
        overrides: of the command line; where there are any, the message says that the value may come from them.
    """
    try:
        yield
    except InputError as error:
        place = f"config {shown(str(config))}{' with --set' if overrides else ''}"
        raise InputError("\n".join(f"{place}: {line}" for line in str(error).splitlines())) from error


def own_name(settings: E) -> E:
    """Add a digest to the name of settings that differ from params.yaml but have its name.

    Their results would otherwise replace those of params.yaml.

    Raises:
        InputError: the settings have its name, but belong to another experiment.
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
    """Add a digest to the name of changed settings, so that their results never replace the original's.

    Settings that are equal, or have another name already, stay as they are.
    """
    if changed.name == original.name and changed != original:
        return changed.model_copy(update={"name": f"{changed.name[:190]}-{changed.digest()}"})
    return changed
