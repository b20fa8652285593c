"""`fedfisher report NAME --page`: a page again from the files of its report alone."""

import shutil
from pathlib import Path

import pytest

from fedfisher_core.engine.errors import InputError
from flows.reports import draw_page
from tests.reporting.pages import Page

REPORTS = Path(__file__).parents[2] / "reports"


@pytest.mark.parametrize("name", ["demo", "privacy_demo", "theory_two_layer", "fedfish_toy"])
def test_a_committed_page_is_that_of_its_files(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    for file in ("results.json", "page.json"):
        shutil.copy(REPORTS / name / file, folder)
    draw_page(folder)
    # The fonts of a machine decide how wide the words of a chart are.
    drawn, committed = (Page((place / "index.html").read_text()) for place in (folder, REPORTS / name))
    assert (drawn.text, drawn.charts) == (committed.text, committed.charts), f"run fedfisher report {name} --page"
    assert (tmp_path / "assets/vega.js").is_file()


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "page.json can't be read"), ("[]", "page.json, content: "), ('{"title": "a"}', "page.json, benchmark: ")],
)
def test_a_report_without_its_page_s_data_is_refused_and_stays(
    tmp_path: Path, content: str | None, message: str
) -> None:
    shutil.copy(REPORTS / "demo/results.json", tmp_path)
    if content is not None:
        (tmp_path / "page.json").write_text(content)
    with pytest.raises(InputError, match=message):
        draw_page(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= {"results.json", "page.json"}
