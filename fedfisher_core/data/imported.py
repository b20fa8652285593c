"""One Parquet file of both splits of a data set, with all that must be known of it, by `fedfisher data import`."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedfisher_core.data.layouts import Images, Layout, Texts, Vectors
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.data.tables import Table, open_file, require_file
from fedfisher_core.engine.errors import InputError, in_one_line, shown
from fedfisher_core.engine.files import parse_json
from fedfisher_core.reporting.rows import write_file

_SPEC = b"fedfisher"
_SPLIT = "split"


def spec_of(path: Path) -> DatasetSpec:
    """Read what must be known of a data set from its file; InputError if the file does not say it."""
    require_file(path, f"data.dataset={shown(str(path))}")
    found = os.stat(path)
    return _spec(path, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=8)
def _spec(path: Path, _changed: int, _size: int) -> DatasetSpec:
    import pyarrow.parquet

    try:
        said = parse_json(pyarrow.parquet.read_schema(path).metadata[_SPEC])
        inputs: Layout
        if "texts" in said:
            inputs = Texts(*said["texts"])
        else:
            inputs = Vectors(said["features"]) if "features" in said else Images(*said["image"])
        names, mean, std = (tuple(said[key]) for key in ("columns", "mean", "std"))
        spec = DatasetSpec(str(path), None, said["classes"], inputs, mean, std, token_columns=("text",))
        return replace(spec, feature_columns=names) if names else spec
    except (OSError, LookupError, TypeError, ValueError, pyarrow.ArrowException) as error:
        raise InputError(
            f"data.dataset={shown(str(path))} says nothing of its classes and examples ({in_one_line(error)}); "
            "allowed: files that `fedfisher data import` writes"
        ) from error


def open_split(spec: DatasetSpec, split: str, where: str, row_bytes: int) -> Table:
    """Open the rows of one split; errors as for `open_file`."""
    import pyarrow.compute

    table = open_file(Path(spec.name), where, row_bytes)
    chosen = pyarrow.compute.equal(table.cells(table.column((_SPLIT,), "split")).cast("string"), split)

    def read(columns: Sequence[str]) -> Any:
        return table.read(columns).filter(chosen)

    return replace(table, size=int(pyarrow.compute.sum(chosen).as_py() or 0), read=read)


def write(
    path: Path, columns: Mapping[str, Any], labels: Sequence[int], names: Sequence[str], said: Mapping[str, Any]
) -> None:
    """Write such a file in one step.

    Args:
        columns: of the examples, by name; and each example's split under `split`.
        labels: of the examples, as indices of names.
        names: of the classes.
        said: what must be known: image, features or texts, columns, mean and std.
    """
    import pyarrow.parquet

    features = {"label": {"_type": "ClassLabel", "names": list(names)}}
    metadata = {
        b"huggingface": json.dumps({"info": {"features": features}}),
        _SPEC: json.dumps({**said, "classes": len(names)}),
    }
    table = pyarrow.table({**columns, "label": pyarrow.array(labels, pyarrow.int64())})
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), sink)
    write_file(path, sink.getvalue().to_pybytes())
