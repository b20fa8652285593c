import sys
from pathlib import Path

import pytest

from fedfisher_core.errors import InputError
from fedfisher_core.registry import Registry, import_submodules


def colours() -> Registry[str]:
    registry: Registry[str] = Registry(
        kind="colour", group="fedfisher.nothing", builtin=lambda: registry.add("red", "#f00")
    )
    return registry


def test_names_lead_to_things_in_order() -> None:
    registry = colours()
    registry.add("blue", "#00f")
    assert list(registry) == ["blue", "red"]
    assert (registry.get("red"), registry.get("blue")) == ("#f00", "#00f")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown colour 'rad'; did you mean 'red'\\? allowed: red"):
        colours().get("rad")


def test_a_name_can_be_taken_once_only() -> None:
    registry = colours()
    assert registry.get("red") == "#f00"
    with pytest.raises(InputError, match="colour 'red' is registered twice"):
        registry.add("red", "#e00")
    assert registry.get("red") == "#f00"


def test_a_thing_can_be_looked_for_without_loading_and_replaced() -> None:
    registry = colours()
    assert registry.find("red") is None
    registry.replace("blue", "#00f")
    registry.replace("blue", "#00e")
    assert registry.find("blue") == registry.get("blue") == "#00e"


def test_other_packages_add_things_through_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "paintbox.py").write_text(
        "from fedfisher_core.registry import Registry\n"
        "colours = Registry(kind='colour', group='paintbox.colours', builtin=lambda: None)\n"
    )
    (tmp_path / "more_paint.py").write_text("from paintbox import colours\ncolours.add('green', '#0f0')\n")
    information = tmp_path / "more_paint-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: more-paint\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[paintbox.colours]\ngreen = more_paint\n")
    monkeypatch.syspath_prepend(tmp_path)
    import paintbox  # type: ignore[import-not-found]

    assert "more_paint" not in sys.modules
    assert list(paintbox.colours) == ["green"]
    assert paintbox.colours.get("green") == "#0f0"


def test_a_new_file_of_a_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "boxful"
    folder.mkdir()
    (folder / "__init__.py").write_text("found = []\n")
    for name in ("one", "two"):
        (folder / f"{name}.py").write_text(f"import boxful\nboxful.found.append('{name}')\n")
    monkeypatch.syspath_prepend(tmp_path)
    import boxful  # type: ignore[import-not-found]

    import_submodules(boxful)
    assert sorted(boxful.found) == ["one", "two"]
