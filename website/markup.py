"""Text of docstrings and descriptions as Markdown."""

import re

_GREEK = {
    "alpha": "α",
    "delta": "δ",
    "epsilon": "ε",
    "eta": "η",
    "gamma": "γ",
    "lambda": "λ",
    "mu": "μ",
    "sigma": "σ",
    "Sigma": "Σ",
    "tau": "τ",
}


def escaped(text: str) -> str:
    """Keep what Markdown would take for markup, but for code in backticks."""
    pieces = " ".join(text.split()).split("`")
    return "`".join(one if index % 2 else _plain(one) for index, one in enumerate(pieces))


def _plain(text: str) -> str:
    return re.sub(r"([\\*_\[\]{}|])", r"\\\1", text).replace("<", "&lt;")


def formulas(text: str) -> str:
    """Set the formulas of a docstring: Greek letters, indices and powers; what is in backticks stays."""
    pieces = escaped(text).split("`")
    return "`".join(one if index % 2 else _set(one) for index, one in enumerate(pieces))


def _set(text: str) -> str:
    text = re.sub(r"\b([A-Za-z]+)\\_(\w+)", lambda found: _index(found[1], found[2]), text)
    text = re.sub(r"\^(-?\w+|\+)", r"<sup>\1</sup>", text)
    text = re.sub(rf"\b({'|'.join(_GREEK)})(?=\b|\d|<)", lambda found: _GREEK[found[1]], text)
    return text.replace(" (x) ", " ⊗ ")


def _index(letter: str, index: str) -> str:
    known = len(letter) == 1 or letter in _GREEK or letter == "sum"
    return f"{'∑' if letter == 'sum' else letter}<sub>{index}</sub>" if known else f"{letter}\\_{index}"
