"""What documents point to is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("deploy/*.md")])

documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


@documents
def test_links_lead_to_files_and_to_headings(document: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", document.read_text()):
        name, _, heading = link.partition("#")
        target = document.parent / name if name else document
        assert target.exists(), link
        if heading:
            found = re.findall(r"^#+ (.+)$", target.read_text(), flags=re.MULTILINE)
            assert heading in {re.sub(r"[^\w\- ]", "", one).strip().lower().replace(" ", "-") for one in found}, link


@documents
def test_configurations_and_benchmarks_that_are_named_exist(document: Path) -> None:
    text = document.read_text()
    for config in re.findall(r"\bconfigs/[a-z]\w*\.yaml", text):
        assert (ROOT / config).is_file(), config
    for module in re.findall(r"-m (benchmarks\.\w+)", text):
        assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file(), module


def test_every_document_is_found_from_the_readme() -> None:
    linked = re.findall(r"\]\((docs/[^)#]+)", (ROOT / "README.md").read_text())
    assert {ROOT / link for link in linked} == set(ROOT.glob("docs/*.md"))
