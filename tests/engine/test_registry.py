import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.registry import Registry, import_submodules

ROOT = Path(__file__).parents[2]
PAINTBOX = """
from fedfisher_core.engine.registry import Registry
colours = Registry(noun="colour", group="fedfisher.colours", builtin=lambda: colours.add("red", "#f00"))
"""


def colours() -> Registry[str]:
    registry: Registry[str] = Registry(
        noun="colour", group="fedfisher.nothing", builtin=lambda: registry.add("red", "#f00")
    )
    return registry


def install(
    folder: Path, package: str, version: str, entry: str, source: str, group: str = "fedfisher.colours"
) -> None:
    """Write a package of one module, with the metadata that an installer would leave."""
    information = folder / f"{package.replace('-', '_')}-{version}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    (information / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
    (folder / f"{entry.partition(' = ')[2]}.py").write_text(source)


def run(folder: Path, code: str, *, warnings: str | None = None) -> list[str]:
    """What code prints, line by line, in a process that finds the packages of a folder and warns of what is given."""
    (folder / "paintbox.py").write_text(PAINTBOX)
    (folder / "script.py").write_text(code)
    done = subprocess.run(
        [sys.executable, folder / "script.py"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert warnings is None or done.stderr == warnings
    return done.stdout.splitlines()


LOOK = """
import sys
from fedfisher_core.engine.errors import InputError
from paintbox import colours
print(list(colours))
for name in ("red", "green"):
    try:
        print(colours.get(name))
    except InputError as error:
        print(error)
print(colours.broken(), file=sys.stderr)
"""


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
    with pytest.raises(InputError) as caught:
        registry.add("red", "#e00")
    both = f"by this project and by module {__name__!r}"
    assert str(caught.value) == f"colour 'red' is registered twice: {both}; it stays this project's"
    assert registry.get("red") == "#f00"


def test_a_thing_can_be_looked_for_without_loading_and_replaced() -> None:
    registry = colours()
    assert registry.find("red") is None
    registry.replace("blue", "#00f")
    registry.replace("blue", "#00e")
    assert registry.find("blue") == registry.get("blue") == "#00e"


def test_other_packages_add_things_through_an_entry_point(tmp_path: Path) -> None:
    install(tmp_path, "more-paint", "1.0", "green = more_paint", "from paintbox import *\ncolours.add('green', '#0f0')")
    code = """
import sys
from paintbox import colours
print("more_paint" in sys.modules)
print(list(colours), colours.get("green"), colours.packages())
"""
    assert run(tmp_path, code) == ["False", "['green', 'red'] #0f0 {'more-paint': '1.0'}"]


def test_an_entry_point_of_any_group_tells_the_package(tmp_path: Path) -> None:
    source = "from registered import shapes\nshapes.add('disc', 'o')"
    install(tmp_path, "discs", "1.2", "disc = discs_module", source, group="elsewhere.shapes")
    (tmp_path / "registered.py").write_text(
        "from fedfisher_core.engine.registry import Registry\n"
        "shapes = Registry(noun='shape', group='elsewhere.shapes', builtin=lambda: None)\n"
    )
    assert run(tmp_path, "from registered import shapes\nprint(shapes.packages())") == ["{'discs': '1.2'}"]


def test_a_name_of_two_packages_is_refused_and_both_are_named(tmp_path: Path) -> None:
    adding = "from paintbox import colours\ncolours.add('green', '#0f0')"
    install(tmp_path, "paint-a", "1.0", "green = paint_a", adding)
    install(tmp_path, "paint-b", "2.0", "green = paint_b", adding)
    listed, red, green = run(tmp_path, LOOK)
    assert (listed, red) == ("['red']", "#f00")
    # Which of the two is found first is the installer's affair.
    assert green.endswith(
        (
            "colour 'green' is registered twice: by package paint-a 1.0 and by package paint-b 2.0",
            "colour 'green' is registered twice: by package paint-b 2.0 and by package paint-a 1.0",
        )
    )


def test_a_name_of_this_project_that_a_package_takes_stays_this_projects(tmp_path: Path) -> None:
    source = "from paintbox import colours\ncolours.add('green', '#0f0')\ncolours.add('red', '#e00')"
    install(tmp_path, "paint-a", "1.0", "red = paint_a", source)
    reason = (
        "plug-in package 'paint-a' 1.0 (entry point fedfisher.colours: red = paint_a) can't be imported: "
        "colour 'red' is registered twice: by this project and by package paint-a 1.0; it stays this project's"
    )
    unknown = f"unknown colour 'green'; did you mean 'red'? allowed: red; {reason}"
    assert run(tmp_path, LOOK, warnings=f"{reason}\n{[reason]}\n") == ["['red']", "#f00", unknown]


@pytest.mark.parametrize("taking", ["add", "replace"])
def test_a_package_that_comes_before_this_project_takes_no_name_of_it(tmp_path: Path, taking: str) -> None:
    source = f"from paintbox import colours\ncolours.add('green', '#0f0')\ncolours.{taking}('red', '#e00')"
    install(tmp_path, "paint-a", "1.0", "red = paint_a", source)
    reason = (
        "plug-in package 'paint-a' 1.0 (entry point fedfisher.colours: red = paint_a) is left out with its colour "
        "'red': the name is this project's, and stays so"
    )
    # Its module is imported before anything is looked up, as where it provides something else as well.
    looked = run(tmp_path, f"import paint_a\n{LOOK}", warnings=f"{reason}\n{[reason]}\n")
    assert looked == ["['green', 'red']", "#f00", "#0f0"]


def test_a_package_cannot_replace_what_is_this_projects(tmp_path: Path) -> None:
    source = "from paintbox import colours\ncolours.replace('red', '#e00')"
    install(tmp_path, "paint-a", "1.0", "red = paint_a", source)
    listed, red, _ = run(tmp_path, LOOK)
    assert (listed, red) == ("['red']", "#f00")


@pytest.mark.parametrize("name", ["", " red", "re\nd", "\x1b[31mred", None])
def test_what_is_no_line_of_text_is_no_name(name: Any) -> None:
    with pytest.raises(InputError, match="allowed: printable characters, no spaces at the ends"):
        colours().add(name, "#f00")


_OURS = {
    "fedfisher_core.methods.method:methods": "fedavg",
    "fedfisher_core.client.objectives.objective:objectives": "fedprox",
    "fedfisher_core.client.statistics.statistic:statistics": "kfac",
    "fedfisher_core.models.spec:models": "lenet",
    "fedfisher_core.data.specs:datasets": "mnist",
    "fedfisher_core.models.trunks.trunk:trunks": "mobilenet_v2",
    "fedfisher_core.methods.server_optimisers.optimiser:server_optimisers": "fedadam",
    "fedfisher_core.privacy.attack.evidence:likelihoods": "kfac",
    "fedfisher_core.experiments.contract:experiments": "benchmark",
}


@pytest.mark.drawn(1)
@pytest.mark.parametrize("imported", ["first", "last"])
def test_every_sort_of_thing_stays_this_projects(tmp_path: Path, imported: str) -> None:
    """Of a package that takes a name of each registry, whether or not its module is imported before ours."""
    places = [place.split(":") for place in _OURS]
    source = "class Theirs: pass\n" + "\n".join(
        f"from {module} import {registry}\ntry:\n    {registry}.add({name!r}, Theirs)\nexcept ValueError: pass"
        for (module, registry), name in zip(places, _OURS.values(), strict=True)
    )
    install(tmp_path, "greedy", "1.0", "mine = greedy", source, group="fedfisher.methods")
    looking = "\n".join(
        f"from {module} import {registry}\nfound = {registry}.get({name!r})\n"
        f"print(getattr(found, '__name__', '') == 'Theirs', {name!r} in {registry})"
        for (module, registry), name in zip(places, _OURS.values(), strict=True)
    )
    before = "import greedy\n" if imported == "first" else ""
    assert run(tmp_path, before + looking) == ["False True"] * len(_OURS)


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("source", "explained"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise RuntimeError('first line\\nsecond line')", "RuntimeError: first line"),
        ("def (:", "SyntaxError: invalid syntax (broken.py, line 1)"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("from paintbox import *\ncolours.add('green', '#0f0')\n1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_package_that_cannot_be_imported_stands_in_nobodys_way(tmp_path: Path, source: str, explained: str) -> None:
    install(tmp_path, "broken-paint", "1.0", "green = broken", source)
    reason = (
        "plug-in package 'broken-paint' 1.0 (entry point fedfisher.colours: green = broken) "
        f"can't be imported: {explained}"
    )
    assert run(tmp_path, LOOK, warnings=f"{reason}\n{[reason]}\n") == [
        "['red']",
        "#f00",
        f"unknown colour 'green'; did you mean 'red'? allowed: red; {reason}",
    ]


def test_a_package_after_a_broken_one_is_found(tmp_path: Path) -> None:
    install(tmp_path, "a-broken", "1.0", "blue = broken", "1 / 0")
    install(tmp_path, "paint-b", "1.0", "green = paint_b", "from paintbox import *\ncolours.add('green', '#0f0')")
    assert run(tmp_path, LOOK) == ["['green', 'red']", "#f00", "#0f0"]


def test_a_package_is_known_though_its_module_was_imported_before(tmp_path: Path) -> None:
    install(tmp_path, "paint-a", "1.0", "green = paint_a", "from paintbox import colours\ncolours.add('green', '#0f0')")
    code = "import paint_a\nfrom paintbox import colours\nprint(colours.packages())"
    assert run(tmp_path, code) == ["{'paint-a': '1.0'}"]


def test_a_package_that_imports_another_does_not_claim_its_things(tmp_path: Path) -> None:
    install(tmp_path, "paint-a", "1.0", "green = paint_a", "import paint_b\nfrom paintbox import colours")
    install(tmp_path, "paint-b", "2.0", "blue = paint_b", "from paintbox import colours\ncolours.add('blue', '#00f')")
    code = "from paintbox import colours\nprint(colours.packages())"
    assert run(tmp_path, code) == ["{'paint-b': '2.0'}"]


def test_a_package_that_looks_something_up_does_not_claim_it(tmp_path: Path) -> None:
    source = "from fedfisher_core.data.specs import datasets\nprint(datasets.get('mnist').name, datasets.packages())"
    install(tmp_path, "paint-a", "1.0", "green = paint_a", source)
    assert run(tmp_path, "import paint_a") == ["mnist {}"]


def test_versions_are_those_of_all_registries_that_were_looked_into(tmp_path: Path) -> None:
    source = "from paintbox import colours\ncolours.add('green', '#0f0')"
    install(tmp_path, "paint-a", "1.0", "green = paint_a", source)
    code = """
from fedfisher_core.engine.registry import Registry, plugin_versions
from paintbox import colours
unused = Registry(noun="shape", group="fedfisher.shapes", builtin=lambda: 1 / 0)
print(plugin_versions())
list(colours)
print(plugin_versions())
"""
    assert run(tmp_path, code) == ["{}", "{'paint-a': '1.0'}"]


def test_a_registry_does_not_need_torch(tmp_path: Path) -> None:
    code = "import sys\nimport fedfisher_core.engine.registry\nprint('torch' in sys.modules)"
    assert run(tmp_path, code) == ["False"]


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


def test_threads_wait_until_all_is_loaded() -> None:
    begun = threading.Event()

    def load_slowly() -> None:
        begun.set()
        registry.add("red", "#f00")
        # What is being loaded may look at what is there.
        assert registry.get("red") == "#f00"
        time.sleep(0.2)
        registry.add("blue", "#00f")

    registry: Registry[str] = Registry(noun="colour", group="fedfisher.nothing", builtin=load_slowly)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(registry.get, "red")
        assert begun.wait(10)
        assert registry.get("blue") == "#00f"
        assert first.result() == "#f00"
