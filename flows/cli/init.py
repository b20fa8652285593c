"""`fedfisher init`: begin a settings file, or a package with a method of one's own."""

import argparse
import importlib.util
import keyword
import re
import shlex
import sys
from pathlib import Path

from fedfisher_core.engine.errors import InputError, shown
from flows.cli.options import Commands, add_command

_TEMPLATES = Path(__file__).parents[1] / "method_package"


def add_commands(commands: Commands) -> None:
    """Add the group of commands."""
    init = add_command(
        commands, "init", "begin a settings file or a method of your own", "init config mine", "init method my_method"
    )
    actions = init.add_subparsers(required=True, metavar="WHAT")
    config = add_command(
        actions,
        "config",
        "write a settings file with the keys, their defaults and what they set",
        "init config mine",
        "init config configs/attack.yaml --experiment privacy_attack",
    )
    config.add_argument("file", metavar="NAME|FILE", help="NAME writes NAME.yaml; the file must not be there")
    config.add_argument(
        "--experiment",
        default="benchmark",
        help="benchmark (the default), privacy_attack, two_layer, fedfish_toy, or that of a plug-in",
    )
    config.set_defaults(command=_config)
    method = add_command(
        actions,
        "method",
        "write a package with a method, its test and settings that compare it with others",
        "init method my_method",
    )
    method.add_argument("folder", type=Path, metavar="FOLDER", help="its name becomes the method's; must not be there")
    method.set_defaults(command=_method)


def _config(options: argparse.Namespace) -> None:
    from fedfisher_core.experiments.contract import experiments
    from fedfisher_core.reporting.rows import write_file
    from fedfisher_core.settings.experiment import commented
    from fedfisher_core.settings.reading import validate

    path = Path(options.file if options.file.endswith((".yaml", ".yml")) else f"{options.file}.yaml")
    text = commented(validate(experiments.get(options.experiment).settings, {"name": path.stem}))
    _require_new(path)
    print(write_file(path, text.encode()))


def _method(options: argparse.Namespace) -> None:
    from fedfisher_core.methods.method import methods
    from fedfisher_core.reporting.rows import write_file

    folder = options.folder
    name = folder.name.replace("-", "_")
    if re.fullmatch("[a-z][a-z0-9_]*", name) is None:
        raise InputError(f"folder {shown(str(folder))}: allowed: a name of small letters, digits, - and _")
    if name in list(methods):
        raise InputError(f"folder {shown(str(folder))}: there is a method {name!r}; allowed: another name")
    if keyword.iskeyword(name) or _is_module(name):
        raise InputError(f"folder {shown(str(folder))}: Python has another use for {name!r}; allowed: another name")
    _require_new(folder)
    for template in sorted(_TEMPLATES.iterdir()):
        text = template.read_text().replace("$name", name).replace("$package", name.replace("_", "-"))
        print(write_file(folder / template.stem.replace("NAME", name), text.encode()))
    where = shlex.quote(str(folder))
    # A shell may find the pip of another Python.
    install = f"{shlex.quote(sys.executable)} -m pip install -e {where}"
    print(f"next: {install} && {shlex.quote(sys.argv[0])} run {where}/compare.yaml")


def _is_module(name: str) -> bool:
    """Say whether an import of this name would find a file, which the new one could hide."""
    found = importlib.util.find_spec(name)
    return found is not None and found.origin is not None


def _require_new(path: Path) -> None:
    if path.exists():
        raise InputError(f"{shown(str(path))} is there, and is not written over; allowed: another name")
