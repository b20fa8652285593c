import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, PositiveInt

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.layouts import Images
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.method import method, methods
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import WireSettings
from tests import tiny
from tests.methods.clients import bind_written, made_up_uploads, server

ROOT = Path(__file__).parents[2]


@method("first_client", uploads=(Weights,), reference="https://example.org/first")
def first_client(
    server: Server,
    uploads: Sequence[Upload],
    *,
    client: PositiveInt = 1,
    share: Annotated[float, Field(ge=0, le=1)] = 0.5,
    order: Literal["up", "down"] = "up",
) -> Aggregate:
    """Take one client's model.

    Args:
        server: not used.
        uploads: the weights.
    """
    return Aggregate.of(uploads[client - 1][Weights].tensors, share=share)


def test_keyword_arguments_are_the_settings() -> None:
    assert bind_written("first_client", {}, [tiny.TINY]).dumped_settings() == {"client": 1, "share": 0.5, "order": "up"}
    chosen = bind_written("first_client", {"client": 2, "order": "down"}, [tiny.TINY])
    assert chosen.dumped_settings() == {"client": 2, "share": 0.5, "order": "down"}
    uploads = made_up_uploads([tiny.initial(seed=0), tiny.initial(seed=1)])
    result = chosen(server(), uploads)
    assert result.networks[0] is uploads[1][Weights].tensors
    assert result.details == {"share": 0.5}


def test_a_registered_method_tells_what_it_is() -> None:
    registered = methods.get("first_client")
    assert registered.summary == "Take one client's model."
    assert (registered.ranked, registered.pooled) == (True, False)
    assert registered.reference == "https://example.org/first"
    assert registered.uploads == (Weights,)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"clinet": 2},
            "unknown setting 'methods.first_client.clinet'; did you mean 'client'? "
            "allowed: client, label_prior, method, only, order, share, wire",
        ),
        ({"client": 0}, "methods.first_client.client=0: "),
        ({"client": "two"}, "methods.first_client.client='two': "),
        ({"client": 1.5}, "methods.first_client.client=1.5: "),
        ({"share": 1.01}, "methods.first_client.share=1.01: "),
        ({"order": "sideways"}, "methods.first_client.order='sideways': Input should be 'up' or 'down'"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        bind_written("first_client", settings, [tiny.TINY])
    assert message in str(caught.value)


def test_a_method_without_settings_says_so() -> None:
    with pytest.raises(
        InputError, match=r"unknown setting 'methods\.fedavg\.steps'; allowed: label_prior, method, only, wire"
    ):
        bind_written("fedavg", {"steps": 3}, [tiny.TINY])


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(InputError, match="unknown method 'fedavgg'; did you mean 'fedavg'"):
        bind_written("fedavgg", {}, [tiny.TINY])


COPIED = """
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.methods.method import method

@method("fedavg", uploads=(Weights,), reference="https://example.org")
def copied(server, uploads):
    pass
"""


def test_two_methods_of_this_project_are_told_apart_by_their_files() -> None:
    assert methods.get("fedavg").name == "fedavg"
    files = r"fedfisher_core\.methods\.fedavg and by fedfisher_core\.methods\.copied"
    with pytest.raises(InputError, match=f"method 'fedavg' is registered twice: by {files}"):
        exec(COPIED, {"__name__": "fedfisher_core.methods.copied"})


def test_a_name_can_be_registered_once_only() -> None:
    with pytest.raises(InputError, match="method 'first_client' is registered twice"):
        method("first_client", uploads=(Weights,), reference="https://example.org")(first_client)
    assert methods.get("first_client").reference == "https://example.org/first"


def without_default(server: Server, uploads: Sequence[Upload], *, steps: int) -> Aggregate:
    """Take no default."""
    return Aggregate.of(uploads[0][Weights].tensors)


def without_type(server: Server, uploads: Sequence[Upload], *, steps=3) -> Aggregate:  # type: ignore[no-untyped-def]
    """Take no type."""
    return Aggregate.of(uploads[0][Weights].tensors)


def without_docstring(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    return Aggregate.of(uploads[0][Weights].tensors)


@pytest.mark.parametrize("function", [without_default, without_type], ids=lambda function: function.__name__)
def test_a_setting_without_type_or_default_is_refused(function: Any) -> None:
    name = function.__name__
    with pytest.raises(InputError, match=f"method '{name}': argument 'steps' needs a type and a default"):
        method(name, uploads=(Weights,), reference="https://example.org")(function)
    assert name not in list(methods)


def test_a_method_without_docstring_has_no_summary() -> None:
    method("undocumented", uploads=(Weights,), reference="https://example.org")(without_docstring)
    assert methods.get("undocumented").summary == ""


def reserved(server: Server, uploads: Sequence[Upload], *, wire: int = 3) -> Aggregate:
    """Take a name that every method has."""
    return Aggregate.of(uploads[0][Weights].tensors)


def test_a_setting_cannot_have_a_name_that_every_method_has() -> None:
    with pytest.raises(InputError, match="method 'reserved': argument 'wire'"):
        method("reserved", uploads=(Weights,), reference="https://example.org")(reserved)


def test_a_method_can_stand_under_several_labels() -> None:
    bound = bind_written("second", {"method": "first_client", "client": 2, "wire": {"format": "paper"}}, [tiny.TINY])
    assert bound.method.name == "first_client"
    assert bound.wire == WireSettings(format="paper")
    described = bound.described()
    assert described["method"] == "first_client"
    assert described["client"] == 2
    assert described["wire"] == {"budget": "fedavg", "format": "paper", "factor_bits": 9}


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        ({"budgt": 3}, "unknown setting 'methods.second.wire.budgt'; did you mean 'budget'?"),
        ({"budget": -1}, "methods.second.wire.budget"),
        ({"format": "zip"}, "methods.second.wire.format='zip': Input should be 'fedfisher', 'paper' or 'float32'"),
        (7, "methods.second.wire=7: must be a mapping"),
        ({"budget": 500}, "method 'second' can't serve model 'tiny': wire.budget=500, "),
    ],
)
def test_a_wrong_wire_is_refused_by_its_name(wire: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        bind_written("second", {"method": "first_client", "wire": wire}, [tiny.TINY])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "fisher_merge",
        "fedfisher_diag",
        "fedfisher_kfac",
        "otfusion",
        "ma_echo",
        "ma_echo_official",
        "ma_echo_ot",
    ],
)
def test_a_network_that_a_method_cannot_serve_is_refused(name: str) -> None:
    spec = ModelSpec("normalised", Images(1, tiny.SIZE, tiny.SIZE), classes=tiny.CLASSES)
    with pytest.raises(InputError) as caught:
        bind_written(name, {}, [spec])
    for named in (f"method '{name}'", "model 'normalised'", "layer 'norm' has type BatchNorm2d"):
        assert named in str(caught.value)


def test_another_package_adds_a_method_in_one_file(tmp_path: Path) -> None:
    (tmp_path / "median.py").write_text(
        '''
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate


@method("median", uploads=(Weights,), reference="https://example.org/median")
def median(server, uploads, *, rounds: int = 4) -> Aggregate:
    """Take the median of every coordinate."""
    return Aggregate.of(uploads[0][Weights].tensors)
'''
    )
    information = tmp_path / "median-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: median\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[fedfisher.methods]\nmedian = median\n")
    listing = subprocess.run(
        [sys.executable, "-c", "from flows.cli import main; main(['methods', '--json'])"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])},
        capture_output=True,
        text=True,
        check=True,
    )
    entries = {entry["name"]: entry for entry in json.loads(listing.stdout)}
    assert {"fedavg", "fedfisher_kfac", "median"} <= entries.keys()
    assert entries["median"]["summary"] == "Take the median of every coordinate."
    assert entries["median"]["settings"]["rounds"] == "integer, default 4"
    assert entries["median"]["settings"].keys() == {"rounds", "label_prior"}


def test_a_method_that_is_ranked_can_not_ask_again() -> None:
    with pytest.raises(InputError, match="method 'again': asks_again=True with ranked=True"):
        method("again", uploads=(Weights,), reference="https://example.org/again", asks_again=True)
