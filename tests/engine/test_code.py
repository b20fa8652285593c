"""Digests of the modules of registered things: which modules count, and which edits change a digest."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedfisher_core.engine.code import code_of, digest_of_source, modules_of
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.method import methods

ROOT = Path(__file__).parents[2]
ASKING = """
import importlib, json, sys
from fedfisher_core.engine.code import code_of, modules_of
from fedfisher_core.engine.installed import distribution_of, module_name, unwrapped
module, name = sys.argv[1].split(":")
thing = getattr(importlib.import_module(module), name)
modules = modules_of(module_name(unwrapped(thing)))
print(json.dumps([code_of(thing), modules, distribution_of(thing), "torch" in sys.modules]))
"""
PLUGIN = {
    "median/__init__.py": "from median.core import median\n",
    "median/core.py": '''
        """The median."""

        from typing import TYPE_CHECKING

        import json
        import median.constants
        from median.helpers import middle
        from . import relative
        from .deep.inner import depth as how_deep

        if TYPE_CHECKING:
            from median.hints import Hint


        class Median:
            """A class."""

            rounds: int = 4
            """How often."""


        def median(values: "Hint", *, share: float = 0.5) -> float:
            """Take the median."""
            from median.late import late

            return late(middle(values)) * share  # of all
    ''',
    "median/constants.py": "SCALE = 3\nNAME = 'three'\n",
    "median/helpers.py": "from median.indirect import half\n\n\ndef middle(values):\n    return half(len(values))\n",
    "median/indirect.py": "import median.core\n\n\ndef half(count):\n    return count // 2\n",
    "median/relative.py": "OFFSET = 0\n",
    "median/deep/__init__.py": "",
    "median/deep/inner.py": "from .. import constants\nfrom ..relative import OFFSET\n\ndepth = 1\n",
    "median/late.py": "def late(value):\n    return value\n",
    "median/hints.py": "Hint = int\n",
    "median/sibling.py": "OTHER = 1\n",
}
COUNTED = ["constants", "core", "deep.inner", "helpers", "hints", "indirect", "late", "relative"]


@dataclass(frozen=True)
class Answer:
    digest: str
    modules: list[str]
    distribution: list[str] | None
    torch: bool


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))


def python(folder: Path, *arguments: str, hash_seed: str = "0", text: str | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)]), "PYTHONHASHSEED": hash_seed}
        | {"PYTHONDONTWRITEBYTECODE": "1"},
        input=text,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def ask(folder: Path, thing: str = "median.core:median", hash_seed: str = "0") -> Answer:
    """What a fresh process answers: digests are taken once a process."""
    return Answer(*json.loads(python(folder, "-c", ASKING, thing, hash_seed=hash_seed)))


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Answer:
    folder = tmp_path_factory.mktemp("plugin")
    write(folder, PLUGIN)
    return ask(folder)


def edited(folder: Path, file: str, old: str, new: str) -> str:
    write(folder, PLUGIN)
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    return ask(folder).digest


def test_the_modules_are_those_that_are_imported(before: Answer) -> None:
    assert before.modules == ["median", *(f"median.{name}" for name in COUNTED)]
    assert len(before.digest) == 16
    assert int(before.digest, 16) > 0
    assert not before.torch


@pytest.mark.drawn(4)
@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("core.py", "  # of all", ""),
        ("core.py", '"""The median."""', '"""The median of all."""'),
        ("core.py", '"""Take the median."""', ""),
        ("core.py", '"""A class."""', "'''Another.'''"),
        ("core.py", '    """How often."""\n', ""),
        ("core.py", "import json\n", "\n\nimport json  # why\n"),
        ("core.py", "late(middle(values)) * share", "(\n        (late(middle(values))) * share\n    )"),
        ("constants.py", "'three'", 'u"three"'),
        ("sibling.py", "1", "2"),
        ("deep/__init__.py", "", "UNUSED = 1\n"),
    ],
)
def test_an_edit_that_changes_no_result_keeps_the_digest(
    tmp_path: Path, before: Answer, file: str, old: str, new: str
) -> None:
    assert edited(tmp_path, f"median/{file}", old, new) == before.digest


@pytest.mark.drawn(4)
@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("core.py", "share: float = 0.5", "share: float = 0.25"),
        ("core.py", "rounds: int = 4", "rounds: int = 4.0"),
        ("core.py", "* share", "/ share"),
        ("core.py", "late(middle(values))", "middle(late(values))"),
        ("constants.py", "3", "'3'"),
        ("constants.py", "'three'", "'drei'"),
        ("helpers.py", "len(values)", "max(values)"),
        ("indirect.py", "2", "3"),
        ("relative.py", "0", "1"),
        ("deep/inner.py", "depth = 1", "depth = 2"),
        ("late.py", "return value", "return -value"),
    ],
)
def test_an_edit_that_can_change_a_result_changes_the_digest(
    tmp_path: Path, before: Answer, file: str, old: str, new: str
) -> None:
    assert edited(tmp_path, f"median/{file}", old, new) != before.digest


def test_statements_that_move_between_blocks_change_the_digest(tmp_path: Path) -> None:
    digests = set()
    for number, text in enumerate(("if a:\n    b\n    c\nelse:\n    d\n", "if a:\n    b\nelse:\n    c\n    d\n")):
        write(tmp_path / str(number), {"moved.py": "a = b = c = d = 1\n\n\ndef f():\n" + textwrap.indent(text, "    ")})
        digests.add(ask(tmp_path / str(number), "moved:f").digest)
    assert len(digests) == 2


def test_a_digest_does_not_depend_on_the_process_or_the_folder(tmp_path: Path, before: Answer) -> None:
    write(tmp_path, PLUGIN)
    assert [ask(tmp_path, hash_seed=seed) for seed in ("1", "2")] == [before, before]


def test_asking_does_not_import(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "lazy/__init__.py": "",
            "lazy/method.py": "def run():\n    from lazy.costly.part import value\n    return value\n",
            "lazy/costly/__init__.py": "raise RuntimeError('imported')\n",
            "lazy/costly/part.py": "raise RuntimeError('imported')\n",
        },
    )
    assert ask(tmp_path, "lazy.method:run").modules == ["lazy.costly.part", "lazy.method"]


def test_a_folder_of_scripts_counts_the_scripts_that_are_imported(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "loose.py": "import loose_helpers, torch\nfrom numpy import array\n\n\ndef run(): ...\n",
            "loose_helpers.py": "",
            "loose_sibling.py": "",
        },
    )
    answer = ask(tmp_path, "loose:run")
    assert (answer.modules, answer.distribution) == (["loose", "loose_helpers"], None)


def install(folder: Path, name: str, files: Mapping[str, str]) -> None:
    write(folder, {f"{name}-1.5.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n"})
    write(folder, {f"{name}-1.5.dist-info/{file}": text for file, text in files.items()})


@pytest.mark.parametrize(
    "files",
    [
        {"top_level.txt": "mode\nmode_helpers\n"},
        {"RECORD": "mode.py,,\nmode_helpers/__init__.py,,\nmode-1.5.dist-info/RECORD,,\n"},
        {"entry_points.txt": "[fedfisher.methods]\nmode = mode\n"},
    ],
    ids=lambda files: next(iter(files)),
)
def test_a_plugin_counts_all_that_its_distribution_installs(tmp_path: Path, files: Mapping[str, str]) -> None:
    write(
        tmp_path,
        {
            "mode.py": "import mode_helpers, somebodys\n\n\ndef mode(): ...\n",
            "mode_helpers/__init__.py": "",
            "somebodys.py": "",
        },
    )
    install(tmp_path, "mode", files)
    install(tmp_path, "library", {"top_level.txt": "somebodys\n"})
    answer = ask(tmp_path, "mode:mode")
    assert answer.modules == ["mode", "mode_helpers"]
    assert answer.distribution == ["mode", "1.5"]


def test_a_plugin_counts_nothing_of_this_project(tmp_path: Path) -> None:
    text = """
        def sampled():
            from fedfisher_core.engine import seeds
            from fedfisher_core.engine.errors import InputError
            from fedfisher_core.methods.method import method
            from fedfisher_core.settings import Strict
            from tasks.options import option
    """
    write(tmp_path, {"sampled.py": text})
    assert ask(tmp_path, "sampled:sampled").modules == ["sampled"]


REFUSING = """
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.code import code_of
try:
    print(code_of(made_up))
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("def made_up(): ...", "'__main__'"),
        ("class made_up: ...", "'__main__'"),
        ("exec('def made_up(): ...')", "'__main__'"),
        ("names = {}\nexec('def made_up(): ...', names)\nmade_up = names['made_up']", "None"),
        ("names = {'__name__': 'json'}\nexec('def made_up(): ...', names)\nmade_up = names['made_up']", "'json'"),
        ("import functools\ndef made_up(): ...\nmade_up = functools.partial(made_up)", "'__main__'"),
    ],
)
def test_what_is_typed_in_is_refused_with_a_word_on_what_to_do(tmp_path: Path, text: str, module: str) -> None:
    assert python(tmp_path, "-", text=text + REFUSING).strip() == (
        f"the source of 'made_up' (module {module}) can't be read, so its results can't be stored; "
        "put it into a separate module (a .py file)"
    )


def test_a_compiled_module_is_refused() -> None:
    import numpy.random.mtrand

    with pytest.raises(InputError, match=r"RandomState.*can't be read.*put it into a separate module"):
        code_of(numpy.random.mtrand.RandomState)


def test_a_module_that_imports_a_compiled_one_of_its_own_is_refused(tmp_path: Path) -> None:
    text = "import sys\n\n\ndef run():\n    import fast.compiled\n"
    write(tmp_path, {"fast/__init__.py": "", "fast/method.py": text})
    (tmp_path / "fast/compiled.pyc").write_bytes(b"")
    code = f"from fast.method import run as made_up\n{REFUSING}"
    assert "the source of module 'fast.compiled' (" in python(tmp_path, "-c", code)


@pytest.mark.parametrize("arguments", [("script.py",), ("-m", "script")])
def test_a_script_has_its_file(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    text = """
        from fedfisher_core.engine.code import modules_of
        from fedfisher_core.engine.installed import module_name

        try:
            from . import beside
        except ImportError:
            import beside


        def run(): ...


        print(modules_of(module_name(run)))
    """
    write(tmp_path, {"script.py": text, "beside.py": ""})
    arguments = tuple(str(tmp_path / part) if part.endswith(".py") else part for part in arguments)
    name = "script" if "-m" in arguments else "__main__"
    assert python(tmp_path, *arguments).strip() == str(tuple(sorted(("beside", name))))


def test_a_script_has_one_digest_in_all_of_its_processes(tmp_path: Path) -> None:
    text = """
        import multiprocessing
        from fedfisher_core.engine.code import code_of


        def run():
            return code_of(run)


        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(run() == pool.apply(run))
    """
    write(tmp_path, {"script.py": text})
    assert python(tmp_path, str(tmp_path / "script.py")).strip() == "True"


def test_a_wrapped_function_is_that_which_it_wraps(tmp_path: Path) -> None:
    text = """
        import functools
        from elsewhere import wrap


        @wrap
        def inner(): ...


        partly = functools.partial(inner)
    """
    wrapper = """
        import functools


        def wrap(function):
            @functools.wraps(function)
            def call(): ...

            return call
    """
    write(tmp_path, {"wrapped.py": text, "elsewhere.py": wrapper})
    assert ask(tmp_path, "wrapped:inner").modules == ["elsewhere", "wrapped"]
    assert ask(tmp_path, "wrapped:partly").modules == ["elsewhere", "wrapped"]


def test_a_thing_of_this_project_is_named_by_its_own_module() -> None:
    assert modules_of("fedfisher_core.methods.fedfisher_kfac") == ("fedfisher_core.methods.fedfisher_kfac",)


def test_several_things_count_together() -> None:
    averaging, regression = (methods.get(name).function for name in ("fedavg", "regmean"))
    assert code_of(averaging, regression) == code_of(regression, averaging)
    assert len({code_of(averaging), code_of(regression), code_of(averaging, regression)}) == 3


def test_a_raised_error_may_say_anything_but_must_be_the_same() -> None:
    def digest(line: str) -> str:
        return digest_of_source(f"def f(x):\n    if x:\n        {line}\n    return x\n".encode(), origins=True)

    first = digest("raise ValueError('too large')")
    assert digest("raise ValueError(f'{x} is too large')") == first
    assert digest("raise ValueError") == first
    assert digest("raise KeyError('too large')") != first
    assert digest("print('too large')") != first


def test_a_moved_import_counts_for_plugins_alone_and_an_imported_name_for_all() -> None:
    def digest(line: str, *, origins: bool = False) -> str:
        return digest_of_source(f"{line}\nvalue = mean(3)\n".encode(), origins=origins)

    first = digest("from package.averages import mean")
    assert digest("from package.inner.means import mean") == first
    assert digest("from package.averages import median as mean") != first
    lines = ("from scipy.stats import mean", "from statistics import mean", "from .stats import mean")
    assert len({digest(line, origins=True) for line in lines}) == 3


def test_a_plugin_whose_modules_change_places_is_other_code(tmp_path: Path) -> None:
    imports = ("from one import step as first\nfrom two import step as second", "from two import step as first")
    steps = ("def step(x):\n    return x + 1\n", "def step(x):\n    return 2 * x\n")
    digests = set()
    for number, (head, one, two) in enumerate(
        [
            (imports[0], *steps),
            (imports[0], *reversed(steps)),
            (imports[1] + "\nfrom one import step as second", *steps),
        ]
    ):
        files = {"plug.py": f"{head}\n\n\ndef f(x):\n    return second(first(x))\n", "one.py": one, "two.py": two}
        write(tmp_path / str(number), files)
        digests.add(ask(tmp_path / str(number), "plug:f").digest)
    assert len(digests) == 3
