"""What documents point to is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/*.md")])

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


def linked_from(document: Path) -> set[Path]:
    """The documents that one links."""
    links = re.findall(r"\]\((?!https?:)([^)#\s]+\.md)", document.read_text())
    return {(document.parent / link).resolve() for link in links}


def test_every_document_is_found_from_the_readme() -> None:
    found, todo = set[Path](), {ROOT / "README.md"}
    while todo:
        found |= todo
        todo = {other for one in todo for other in linked_from(one)} - found
    assert set(ROOT.glob("docs/**/*.md")) <= found


def test_the_list_of_pages_has_every_page() -> None:
    listed = linked_from(ROOT / "docs/README.md")
    assert set(ROOT.glob("docs/**/*.md")) - {ROOT / "docs/README.md"} <= listed


def test_files_and_rooms_that_the_architecture_names_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    for name in re.findall(r"`((?:flows|tasks|tests|fedfisher_core|configs)/[\w./]+)`", text):
        assert (ROOT / name).exists(), name
    rooms = set(re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE))
    assert rooms == {path.parent.name for path in ROOT.glob("fedfisher_core/*/__init__.py")}


STARTS = r"^[^`\n]*\b(prefect (server|worker) start|prefect deploy\b|prefect work-pool create|dask worker)"
SAYING_HOW = [
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*.yaml"), *ROOT.glob("deploy/*"))
    if path.name != "CHANGELOG.md" and re.search(STARTS, path.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize("document", SAYING_HOW, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_imports_prefect_by_itself_is_told_not_to_phone_home_first(document: Path) -> None:
    text, image = document.read_text(), (ROOT / "deploy/Dockerfile").read_text()
    # What compose.yaml starts is the image.
    before = image if "dockerfile:" in text else re.split(STARTS, text, maxsplit=1, flags=re.MULTILINE)[0]
    for variable in ("DO_NOT_TRACK=1", "PREFECT_SERVER_ANALYTICS_ENABLED=false"):
        assert variable in before, variable


def test_there_are_such_documents() -> None:
    assert {path.name for path in SAYING_HOW} == {
        "prefect.yaml",
        "cluster.md",
        "pools.yaml",
        "scheduler.md",
        "servers.sh",
        "compose.yaml",
    }
