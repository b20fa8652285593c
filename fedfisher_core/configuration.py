"""How settings are read from YAML files and the command line."""

import copy
import difflib
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from fedfisher_core.errors import InputError
from fedfisher_core.settings import Experiment, Settings

PARAMS = Path("params.yaml")
"""The default benchmark."""

BENCHMARK = "benchmark"
TWO_LAYER = "two_layer"
PRIVACY_ATTACK = "privacy_attack"
EXPERIMENTS = (BENCHMARK, TWO_LAYER, PRIVACY_ATTACK)

M = TypeVar("M", bound=BaseModel)
E = TypeVar("E", bound=Experiment)


def load_settings(config: Path, overrides: Sequence[str] = ()) -> Settings:
    """Read the configuration file of a benchmark and apply overrides.

    Args:
        config: a YAML file; keys that it leaves out have their defaults.
        overrides: `key=value` each, with a dotted key and a YAML value. Overridden settings get a name of their
            own (the file's name and a digest) so that their results never replace the file's; `name=...` sets it.

    Returns:
        The settings.

    Raises:
        InputError: the file can't be read, or a key or value is not allowed; it names the key, the value and
            what is allowed.
    """
    content = read_config(config, experiment=BENCHMARK)
    original = parse_settings(content)
    # The file may list the methods or leave them out; an override of one method's settings keeps the others.
    content["methods"] = copy.deepcopy(original.methods)
    for text in overrides:
        override(content, text)
    return name_apart(parse_settings(content), original)


def load_experiment(kind: type[E], config: Path, overrides: Sequence[str] = ()) -> E:
    """Read the configuration file of an experiment that is no benchmark, and apply overrides.

    Args:
        kind: the settings; the default of their field `experiment` is what the file must name.
        config: a YAML file; keys that it leaves out have their defaults.
        overrides: `key=value` each, as `load_settings` takes them.

    Returns:
        The settings.

    Raises:
        InputError: the file can't be read or describes another experiment, or a key or value is not allowed; it
            names the key, the value and what is allowed.
    """
    content = read_config(config, experiment=kind.model_fields["experiment"].default)
    original = validate(kind, content)
    for text in overrides:
        override(content, text)
    return name_apart(validate(kind, content), original)


def parse_settings(content: Mapping[str, Any]) -> Settings:
    """Validate the settings of a benchmark.

    Args:
        content: nested settings as YAML or JSON gives them.

    Returns:
        The settings.

    Raises:
        InputError: as `validate`.
    """
    return validate(Settings, content)


def experiment_of(config: Path) -> str:
    """Say which of the experiments a configuration file describes.

    Args:
        config: a YAML file; without the key `experiment` it describes a benchmark.

    Returns:
        One of EXPERIMENTS.

    Raises:
        InputError: the file can't be read, or there is no such experiment.
    """
    name = _read(config).get("experiment", BENCHMARK)
    if name not in EXPERIMENTS:
        raise InputError(f"experiment={name!r}; {nearest(str(name), EXPERIMENTS)}")
    return name


def read_config(config: Path, *, experiment: str) -> dict[str, Any]:
    """Read a configuration file of one kind of experiment.

    Args:
        config: a YAML file.
        experiment: one of EXPERIMENTS.

    Returns:
        Its settings as they stand there, without the key `experiment`.

    Raises:
        InputError: the file can't be read, or describes another kind of experiment.
    """
    found = experiment_of(config)
    if found != experiment:
        raise InputError(f"config {str(config)!r} has experiment={found!r}; allowed here: {experiment}")
    content = _read(config)
    content.pop("experiment", None)
    return content


def name_apart(changed: E, original: E) -> E:
    """Give overridden settings a name of their own, so that their results never replace the file's.

    Args:
        changed: settings with overrides.
        original: the same without.

    Returns:
        The changed settings; where they differ but bear the same name, with a digest added to it.
    """
    if changed.name == original.name and changed != original:
        return changed.model_copy(update={"name": f"{changed.name}-{changed.digest()}"})
    return changed


def _read(config: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(config.read_text())
    except FileNotFoundError:
        raise InputError(f"config {str(config)!r} does not exist") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"config {str(config)!r} can't be read: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"config {str(config)!r} must hold a mapping of settings, not {type(content).__name__}")
    return content


def validate(model: type[M], content: Mapping[str, Any], *, under: str = "") -> M:
    """Validate settings.

    Args:
        model: what they are to be.
        content: nested settings as YAML or JSON gives them.
        under: the key that they stand under, if any, for the messages.

    Returns:
        The settings.

    Raises:
        InputError: names every key that is unknown (with the nearest known one) or whose value is not allowed.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise InputError("\n".join(_explain(model, dict(problem), under) for problem in error.errors())) from None


def nearest(name: str, known: Sequence[str]) -> str:
    """Say what is allowed in place of an unknown name, the nearest first.

    Args:
        name: the unknown name.
        known: the names that exist.

    Returns:
        A phrase for an error message.
    """
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}allowed: {', '.join(sorted(known))}"


def override(content: dict[str, Any], text: str) -> None:
    """Change one of the settings of a configuration file.

    Args:
        content: the nested settings, changed in place.
        text: `key=value` with a dotted key and a YAML value.

    Raises:
        InputError: the text has another form, or the key leads through a value.
    """
    key, separator, written = text.partition("=")
    if not separator or not key:
        raise InputError(f"--set {text!r} must have the form key=value")
    try:
        value = yaml.safe_load(written)
    except yaml.YAMLError as error:
        raise InputError(f"--set {text!r}: the value is not YAML: {error}") from None
    *parents, last = key.split(".")
    node = content
    for parent in parents:
        child = node.setdefault(parent, {})
        if child is None:
            child = node[parent] = {}
        if not isinstance(child, dict):
            raise InputError(f"--set {text!r}: {parent!r} is a value, not a group of settings")
        node = child
    node[last] = value


def _explain(model: type[BaseModel], problem: dict[str, Any], under: str) -> str:
    """Turn one of pydantic's errors into a sentence that names key, value and what is allowed."""
    key = ".".join(str(part) for part in [*([under] if under else []), *problem["loc"]])
    if problem["type"] == "extra_forbidden":
        *parents, last = problem["loc"]
        return f"unknown setting {key!r}; {nearest(str(last), list(_model_at(model, parents).model_fields))}"
    message = problem["msg"].removeprefix("Value error, ")
    value = "" if problem["type"] == "missing" or not key else f"={problem['input']!r}"
    return f"{key}{value}: {message}" if key else message


def _model_at(model: type[BaseModel], path: Sequence[Any]) -> type[BaseModel]:
    for part in path:
        if isinstance(part, int):
            # An element of a list: the annotation before it named the elements' model.
            continue
        annotation = model.model_fields[str(part)].annotation
        if get_origin(annotation) in (Union, types.UnionType, tuple):
            annotation = next(a for a in get_args(annotation) if isinstance(a, type) and issubclass(a, BaseModel))
        assert isinstance(annotation, type)
        model = annotation
    return model
