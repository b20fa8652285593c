"""`fedfisher data` and `fedfisher store`: what is kept on disk."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fedfisher_core.engine.errors import InputError
from flows.cli.options import Commands, add_command, add_config, add_json, settings_of

if TYPE_CHECKING:
    from flows.pruning import Unused


def add_commands(commands: Commands) -> None:
    """Add both groups of commands."""
    data = add_command(commands, "data", "manage data sets", "data fetch mnist", "data import my.csv -o my.parquet")
    actions = data.add_subparsers(required=True, metavar="ACTION")
    fetch = add_command(actions, "fetch", "put a data set into the folder `data`", "data fetch mnist")
    fetch.add_argument("name", help="one of the hub's, as `fedfisher datasets` lists them")
    fetch.set_defaults(command=_fetch)
    imported = add_command(
        actions,
        "import",
        "make a file that data.dataset names, of a CSV of numbers, a table of texts or a folder of pictures",
        "data import flowers.csv --label species -o flowers.parquet",
        "data import reviews.csv --text review --label stars -o reviews.parquet",
        "data import pictures --size 28 -o pictures.parquet",
    )
    imported.add_argument(
        "source",
        type=Path,
        metavar="TABLE|FOLDER",
        help="a CSV, or with --text a Parquet file too; a folder has a subfolder of pictures a class",
    )
    imported.add_argument("--label", help="column of a table with the labels (default: label)")
    imported.add_argument("--text", metavar="COLUMN", help="column of a table with texts (default: a CSV of numbers)")
    imported.add_argument("--size", type=int, help="pictures' height and width in pixels (default: 32)")
    imported.add_argument("--test", type=float, default=0.2, help="share of each class for tests (default: 0.2)")
    imported.add_argument("-o", "--out", type=Path, required=True, help="file to write, which ends with .parquet")
    imported.set_defaults(command=_import)

    store = add_command(commands, "store", "manage artifacts", "store prune --dry-run")
    actions = store.add_subparsers(required=True, metavar="ACTION")
    prune = add_command(
        actions,
        "prune",
        "delete artifacts that no results and no report rest on",
        "store prune --dry-run",
        "store prune configs/mnist_methods.yaml --yes --json",
    )
    add_json(prune)
    prune.add_argument("--dry-run", action="store_true", help="only show what would be deleted")
    prune.add_argument("--yes", action="store_true", help="do not ask, even if most of the store would be deleted")
    add_config(prune)
    prune.set_defaults(command=_prune)


def _fetch(options: argparse.Namespace) -> None:
    from fedfisher_core.data.hub import fetch

    print(fetch(options.name))


def _import(options: argparse.Namespace) -> None:
    from fedfisher_core.data.importing import import_pictures, import_table, import_texts
    from fedfisher_core.data.specs import FILE

    if options.out.suffix != FILE or options.out.exists():
        raise InputError(f"--out={options.out}; allowed: a new file whose name ends with {FILE}")
    kind, useless = ("a folder of pictures", ("text", "label")) if options.source.is_dir() else ("a table", ("size",))
    for name in useless:
        if getattr(options, name) is not None:
            raise InputError(f"--{name}={getattr(options, name)} with {kind}, {options.source}; allowed: without")
    size, label = 32 if options.size is None else options.size, "label" if options.label is None else options.label
    if not 0 < options.test < 1 or not 1 <= size <= 1024:
        raise InputError(f"--test={options.test} --size={size}; allowed: between 0 and 1, and 1 to 1024")
    if options.source.is_dir():
        import_pictures(options.source, options.out, size=size, test=options.test)
    elif options.text is not None:
        import_texts(options.source, options.out, text=options.text, label=label, test=options.test)
    else:
        import_table(options.source, options.out, label=label, test=options.test)
    print(options.out)


def _prune(options: argparse.Namespace) -> None:
    from flows.pruning import find_unused, remove_unused

    settings = settings_of(options)
    found = find_unused(settings)
    if options.dry_run:
        _print("would_delete", found, as_json=options.json)
        return
    # A question would stand in what a program reads.
    may_ask = not options.json and sys.stdin is not None and sys.stdin.isatty()
    warning = f"most of {settings.run.store} would be deleted: {found}"
    if found.is_most and not options.yes and not _agrees(warning, may_ask=may_ask):
        print("nothing was deleted")
        return
    _print("deleted", remove_unused(settings, found), as_json=options.json)


def _agrees(warning: str, *, may_ask: bool) -> bool:
    if not may_ask:
        raise InputError(f"{warning}; confirm with --yes")
    return input(f"{warning}. Delete? [y/N] ").strip().lower() in ("y", "yes")


def _print(key: Literal["would_delete", "deleted"], unused: "Unused", *, as_json: bool) -> None:
    if as_json:
        folders = [{"folder": str(folder), "bytes": size} for folder, size in unused.sizes.items()]
        kept = {"artifacts": len(unused.kept), "bytes": sum(unused.kept.values())}
        print(json.dumps({key: folders, "kept": kept}, indent=2))
    else:
        print(*unused.sizes, f"{key.replace('_', ' ')} {unused}", sep="\n")
