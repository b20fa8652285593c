"""Names of methods, numbers, settings and tables, as reports, the terminal and Prefect's pages write them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

FEDFISHER = frozenset({"fedfisher_diag", "fedfisher_full", "fedfisher_kfac"})
"""The methods of the FedFisher paper."""

OURS = frozenset({"gaussian_distillation", "kfac_distillation", "mixture_distillation", "summed_moments"})
"""The methods that are this project's own."""

_NAMES = {
    "afl": "AFL",
    "best_local": "Best local network",
    "ccvr": "CCVR",
    "centralised": "Central training",
    "co_boosting": "Co-Boosting",
    "dare": "DARE",
    "dense": "DENSE",
    "ensemble": "Ensemble",
    "ensemble_by_labels": "Ensemble, weighted by labels",
    "ensemble_logits": "Ensemble of logits",
    "fafi": "FAFI",
    "fedavg": "FedAvg",
    "fedbens": "FedBEns",
    "fedbens_mixture": "FedBEns, mixture",
    "fedcgs": "FedCGS",
    "fedex_lora": "FedEx-LoRA",
    "fedfish": "FedFish",
    "fedfisher": "FedFisher",
    "fedfisher_diag": "FedFisher (diagonal)",
    "fedfisher_kfac": "FedFisher (K-FAC)",
    "fedlpa": "FedLPA",
    "fedpft": "FedPFT",
    "fens": "FENS",
    "fipa": "FIPA",
    "fisher_merge": "FisherMerge",
    "flexlora": "FlexLoRA",
    "gaussian_distillation": "Gaussian distillation",
    "gh_lda": "GH-LDA",
    "gradient_matching": "Gradient matching",
    "iso_c": "Iso-C",
    "kfac_distillation": "K-FAC distillation",
    "knots": "KnOTS",
    "local": "Local networks",
    "local_mean": "Mean of local networks",
    "ma_echo": "MA-Echo",
    "ma_echo_official": "MA-Echo, official form",
    "ma_echo_ot": "MA-Echo with transport",
    "mats": "MaTS",
    "mixture_distillation": "Mixture distillation",
    "otfusion": "OTFusion",
    "pfnm": "PFNM",
    "pfnm_original": "PFNM, first code",
    "regmean": "RegMean",
    "regmean_plus_plus": "RegMean++",
    "summed_moments": "Summed moments",
    "ties": "TIES",
    "tsv_m": "TSV-M",
    "wudi": "WUDI",
}

MINUS = "\u2212"
_THIN_SPACE = "\u2009"


def in_words(label: str) -> str:
    """Write a method's label in words: "fedfisher_kfac, compressed" is "FedFisher (K-FAC), compressed"."""
    head, *rest = re.split(r"(, | \()", label, maxsplit=1)
    # The longest name that the label begins with says what it is a variant of.
    known = max((name for name in _NAMES if f"{head}_".startswith(f"{name}_")), key=len, default="")
    variant = head[len(known) :].replace("_", " ").strip()
    return ", ".join(part for part in (_NAMES.get(known, ""), variant) if part) + "".join(rest)


def percent(fraction: float, digits: int = 2) -> str:
    """Write a fraction in per cent, without the sign."""
    return f"{100 * fraction:.{digits}f}"


def points(fraction: float) -> str:
    """Write a difference of fractions in percentage points, always signed."""
    return signed(100 * fraction)


def signed(number: float) -> str:
    """Write a number to hundredths with its sign; what rounds to 0 has no sign."""
    text = f"{number:+.2f}"
    return text[1:] if float(text) == 0 else text.replace("-", MINUS)


def seconds(value: float) -> str:
    """Write seconds to hundredths; less than that, but more than 0, is written as less than 0.01."""
    return f"<{_THIN_SPACE}0.01" if 0 < value < 0.005 else f"{value:.2f}"


def megabits(bits: float) -> str:
    """Write bits as megabits, to thousandths."""
    return f"{bits / 1e6:.3f}"


def grouped(number: int) -> str:
    """Write a whole number with thin spaces between its thousands."""
    return f"{number:,}".replace(",", _THIN_SPACE)


def significant(number: float) -> str:
    """Write a number to three significant digits, zeros included."""
    return f"{number:#.3g}".removesuffix(".")


def plural(count: int, noun: str) -> str:
    """Write a count with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def breakable(label: str) -> Markup:
    """Let a label break after its underscores on narrow screens."""
    return escape(label).replace("_", Markup("_<wbr>"))


def setting_value(value: Any) -> str:
    """Write a setting's value: strings without quotes, lists with commas, the rest as in JSON."""
    if isinstance(value, str):
        return value
    if value is None or value in ({}, [], ()):
        return "none"
    if isinstance(value, list | tuple):
        return ", ".join(setting_value(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {setting_value(item)}" for key, item in value.items())
    return json.dumps(value, default=str)


def settings_groups(settings: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Arrange nested settings for reading, as pairs of name and (setting, value) pairs.

    Every mapping is a group with a dotted name; settings outside a mapping are in "general". Empty groups are left out.
    """
    return [(name or "general", pairs) for name, pairs in _groups(settings, "") if pairs]


def _groups(settings: Mapping[str, Any], name: str) -> list[tuple[str, list[tuple[str, str]]]]:
    inner = {key: value for key, value in settings.items() if isinstance(value, Mapping) and value}
    own = [(key, setting_value(value)) for key, value in settings.items() if key not in inner]
    groups = [(name, own)]
    for key, value in inner.items():
        groups += _groups(value, f"{name}.{key}" if name else key)
    return groups


@dataclass(frozen=True)
class Table:
    """Lines of text with a title.

    Args:
        words: number of columns with words, which are aligned to the left; the others have numbers.
    """

    title: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    words: int = 1


def as_text(tables: Sequence[Table]) -> str:
    """Write at least one table for the terminal, with aligned columns and no newline at the end."""
    return "\n\n".join(map(_block, tables))


def as_markdown(tables: Sequence[Table]) -> str:
    """Write tables in Markdown, a heading each."""
    blocks = []
    for table in tables:
        rule = ["---" if column < table.words else "---:" for column in range(len(table.header))]
        lines = [[cell.strip().replace("|", "\\|") for cell in line] for line in (table.header, rule, *table.lines)]
        blocks.append(f"## {table.title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(blocks)


def as_records(tables: Sequence[Table]) -> list[dict[str, str]]:
    """Write tables as one for Prefect's pages: a record a line, with the title of its table."""
    return [{"": table.title, **line} for table in tables for line in _by_column(table)]


def as_json(tables: Sequence[Table]) -> str:
    """Write tables for programs: each with its title, and each line as texts by column."""
    written = [{"title": table.title, "lines": _by_column(table)} for table in tables]
    return json.dumps(written, indent=2, ensure_ascii=False)


def _by_column(table: Table) -> list[dict[str, str]]:
    names = [name.strip() for name in table.header]
    return [dict(zip(names, map(str.strip, line), strict=True)) for line in table.lines]


def _block(table: Table) -> str:
    lines = [table.header, *table.lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = [
        "  ".join(
            [
                *map(str.ljust, line[: table.words], widths[: table.words]),
                *map(str.rjust, line[table.words :], widths[table.words :]),
            ]
        ).rstrip()
        for line in lines
    ]
    return "\n".join([table.title, aligned[0], "-" * max(map(len, aligned)), *aligned[1:]])
