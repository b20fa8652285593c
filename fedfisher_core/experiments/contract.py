"""What an experiment is: settings, a plan of jobs, what is made of their results, and how settings are read."""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import fedfisher_core.experiments
from fedfisher_core.engine.errors import InputError, shown
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.plan import Outcome
from fedfisher_core.engine.registry import Registry, import_submodules
from fedfisher_core.reporting.formats import Table
from fedfisher_core.reporting.page import PageData
from fedfisher_core.reporting.rows import read_rows
from fedfisher_core.reporting.runs import Runs
from fedfisher_core.settings import ExperimentSettings
from fedfisher_core.settings.reading import override, read_file, validate

# Settings, rows and pages are read without torch, which takes seconds.
if TYPE_CHECKING:
    from fedfisher_core.models.memory import Load

S = TypeVar("S", bound=ExperimentSettings)
P = TypeVar("P", bound="Plan")
R = TypeVar("R")

E = TypeVar("E", bound=ExperimentSettings)
PARAMS = Path("params.yaml")
"""The default experiment."""
DEFAULT = "benchmark"
"""The experiment of a file that does not name one."""


@dataclass(frozen=True)
class Plan:
    """The work of an experiment.

    Args:
        jobs: in any order.
        largest: the most that a job holds in memory at once; None where it is not estimated.
    """

    jobs: Sequence[Job[Any]]
    largest: "Load | None" = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Experiment(Generic[S, P, R]):
    """One experiment, such as the benchmark.

    Commands import it to look at settings, so functions of modules that compute or draw are given as `late` ones.

    Args:
        row: data class of one result, with the field `artifact`, the key of the artifact that its numbers come from.
        plan: checks all that can be checked without work, and lists the jobs; raises `InputError`, which names the
            setting, its value and what is allowed.
        rows: gathers what the plan's jobs measured, in the order of the result files. A job that failed has no
            artifact, and results that need it have no row.
        files: makes the files of the report, index.html among them, by name; result files are made of the rows. It
            needs rows and the page's data alone, so that a report's files are enough to make its page again.
        runs: lists what MLflow records; figures are drawn only for a new run.
        shown: gathers what the page shows in addition to the rows and the settings, as data that JSON can hold.
        drawn_from: files in the working directory that the page shows in addition to the results.

    Raises:
        InputError: `row` is no such data class.
    """

    settings: type[S]
    row: type[R]
    plan: Callable[[S], P]
    rows: Callable[[P, Outcome], Sequence[R]]
    files: Callable[[Sequence[R], PageData], Mapping[str, bytes]]
    runs: Callable[[P, Outcome, Sequence[R]], Runs]
    tables: Callable[[Sequence[R]], Sequence[Table]]
    shown: Callable[[P, Outcome], Mapping[str, Any]] = lambda plan, outcome: {}
    drawn_from: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if not is_dataclass(self.row) or "artifact" not in {one.name for one in fields(self.row)}:
            raise InputError(f"row={self.row.__qualname__}; allowed: data classes with the field 'artifact'")

    def read(self, path: Path) -> list[R]:
        """Read the rows of a results.json; see `read_rows`."""
        return read_rows(path, self.row)


def late(name: str) -> Callable[..., Any]:
    """Make a function that imports another one when it is called, and calls it.

    Args:
        name: module and function, such as "my_package.page:report_files".

    Raises:
        InputError: on the call, if there is no such function.
    """

    def call(*given: Any) -> Any:
        module, _, function = name.partition(":")
        try:
            found = getattr(importlib.import_module(module), function)
        except (AttributeError, ImportError) as error:
            raise InputError(f"the experiment's function {name!r} can't be imported: {error}") from error
        return found(*given)

    return call


def experiment_of(settings: ExperimentSettings) -> Experiment[Any, Any, Any]:
    """Look up the experiment that settings belong to."""
    return experiments.get(settings.experiment)


experiments: Registry[Experiment[Any, Any, Any]] = Registry(
    noun="experiment",
    group="fedfisher.experiments",
    builtin=lambda: import_submodules(fedfisher_core.experiments),
)


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
