"""How many Python files and lines each package has, and how many it had.

python -m benchmarks.size [--against REVISION]
"""

import argparse
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from benchmarks.trees import HERE

PACKAGES = ("fedfisher", "fedfisher_core", "flows", "tasks", "tests", "benchmarks")


@dataclass(frozen=True)
class Size:
    """Python files of a package, and the lines of all of them."""

    files: int
    lines: int


def sizes(texts: Mapping[str, str]) -> dict[str, Size]:
    """Count files and lines of each package.

    Args:
        texts: of Python files, by path from the project's root.
    """
    lines: dict[str, list[int]] = {package: [] for package in PACKAGES}
    for path, text in texts.items():
        lines[PurePosixPath(path).parts[0]].append(text.count("\n"))
    return {package: Size(len(counts), sum(counts)) for package, counts in lines.items()}


def working_tree() -> dict[str, str]:
    """Read all Python files as they are now, those that git does not know yet included."""
    listed = _git("ls-files", "--cached", "--others", "--exclude-standard", "--", *PACKAGES).splitlines()
    paths = {path: HERE / path for path in listed if path.endswith(".py")}
    return {path: file.read_text() for path, file in paths.items() if file.exists()}


def at(revision: str) -> dict[str, str]:
    """Read all Python files of a revision."""
    listed = _git("ls-tree", "-r", "--name-only", revision, "--", *PACKAGES).splitlines()
    paths = [path for path in listed if path.endswith(".py")]
    # One process hands out all files: a header of name, type and size in bytes, then the content and a line's end.
    output = subprocess.run(
        ["git", "-C", str(HERE), "cat-file", "--batch"],
        input="".join(f"{revision}:{path}\n" for path in paths).encode(),
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    texts, begin = {}, 0
    for path in paths:
        header = output.index(b"\n", begin)
        end = header + 1 + int(output[begin:header].split()[-1])
        texts[path], begin = output[header + 1 : end].decode(), end + 1
    return texts


def _git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(HERE), *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="REVISION", help="an earlier commit to compare with")
    revision = parser.parse_args().against
    now, then = sizes(working_tree()), {} if revision is None else sizes(at(revision))
    print(f"{'':14}  {'files':>6} {'lines':>7}" + (f"   {revision[:12]:>12}: files, lines" if then else ""))
    for package, size in now.items():
        earlier = f"   {then[package].files:19,} {then[package].lines:7,}" if then else ""
        print(f"{package:14}  {size.files:6,} {size.lines:7,}{earlier}")


if __name__ == "__main__":
    main()
