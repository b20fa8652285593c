"""Charts of a benchmark: means over settings, each group of settings, costs against accuracy, and rounds."""

from collections.abc import Sequence

from fedfisher_core.experiments.benchmark.algorithms import AlgorithmTable
from fedfisher_core.experiments.benchmark.answer import Standing, setting_names
from fedfisher_core.experiments.benchmark.roles import Role, Seconds
from fedfisher_core.experiments.benchmark.summary import MethodSummary, SettingSummary
from fedfisher_core.reporting.charts import (
    Chart,
    Dot,
    Point,
    Trade,
    coloured,
    dot_plot,
    line_chart,
    trade_off_chart,
)
from fedfisher_core.reporting.measure import Measure, gather
from fedfisher_core.reporting.names import in_words

_GROUPS = {Role.ONE_NETWORK: "One network", Role.ENSEMBLE: "Ensembles", Role.REFERENCE: "References"}
_ACCURACY = "accuracy, %"


def means_chart(found: Sequence[Standing]) -> Chart:
    """Draw the mean accuracy of each method over settings, with its 95 % interval over seeds."""
    most = max(one.num_settings for one in found)
    return dot_plot([_dot(one, most) for one in found], f"mean {_ACCURACY}" if most > 1 else _ACCURACY)


def _dot(one: Standing, most: int) -> Dot:
    interval = None if one.mean is None else one.mean.interval
    low, high = (None, None) if interval is None else (max(100 * interval[0], 0.0), min(100 * interval[1], 100.0))
    fewer = "" if one.num_settings == most else f" ({one.num_settings} of {most} settings)"
    mean = 100 * one.line.mean("accuracy")
    return Dot(one.method, one.name + fewer, mean, low, high, _GROUPS[one.line.role])


def settings_charts(summaries: Sequence[SettingSummary], found: Sequence[Standing]) -> list[Chart]:
    """Draw accuracies by setting, a chart for each group of settings that differ only in how the data is split.

    Groups of one setting share a chart. The eight methods of one network with the highest means over all settings have
    a colour, which is the same in all charts.
    """
    if len(summaries) < 2:
        return []
    colours = coloured(one.method for one in found if one.line.role is Role.ONE_NETWORK)
    families = gather(summaries, lambda summary: summary.setting.family)
    charts = [_settings_chart(own, family, colours) for family, own in families.items() if len(own) > 1]
    alone = [own[0] for own in families.values() if len(own) == 1]
    return [*charts, *([_settings_chart(alone, "", colours)] if alone else [])]


def _settings_chart(summaries: Sequence[SettingSummary], title: str, colours: dict[str, str]) -> Chart:
    names = setting_names([summary.setting for summary in summaries])
    points = [
        _point(method, names[summary.setting], f"{summary.setting.partition} {summary.setting.shift or ''}")
        for summary in summaries
        for method in summary.methods
    ]
    own = {method: colour for method, colour in colours.items() if any(one.method == method for one in points)}
    return line_chart(points, axes=("", _ACCURACY), title=title, colours=own)


def _point(method: MethodSummary, setting: str, joined: str) -> Point:
    return Point(method.method, in_words(method.method), setting, *_bar(method.accuracy), dash=joined)


def _bar(accuracy: Measure) -> tuple[float, float | None, float | None]:
    mean, spread = 100 * accuracy.mean, accuracy.deviation
    if spread is None:
        return mean, None, None
    return round(mean, 3), round(mean - 100 * spread, 3), round(mean + 100 * spread, 3)


def trade_off_charts(found: Sequence[Standing], seconds: Seconds) -> list[Chart]:
    """Draw accuracy against the upload and against the server's seconds, of methods that ran in most settings."""
    ranked = [one for one in found if one.line.role is Role.ONE_NETWORK]
    whole = [one for one in ranked if one.num_settings == ranked[0].num_settings]
    if len(whole) < 3:
        return []
    costs = {
        "upload of all clients, Mbit": ("upload_bits", 1e6),
        f"server, {seconds.unit}": (seconds.server, 1.0),
    }
    return [
        trade_off_chart(
            [
                Trade(one.method, one.name, one.line.mean(field) / unit, 100 * one.line.mean("accuracy"))
                for one in whole
                if one.line.mean(field) > 0
            ],
            axes=(axis, _ACCURACY),
            logarithmic=field != "upload_bits",
        )
        for axis, (field, unit) in costs.items()
        if any(one.line.mean(field) > 0 for one in whole)
    ]


def rounds_charts(tables: Sequence[AlgorithmTable]) -> list[Chart]:
    """Draw accuracy against rounds and against bits, two charts a setting."""
    return [
        line_chart(
            [
                Point(one.name, in_words(one.name), x, *_bar(point.accuracy))
                for one in table.algorithms
                for point in one.points
                for x in (point.bits / 8e6 if by_bits else point.round,)
            ],
            axes=("sent until then, both ways, MB" if by_bits else "round", _ACCURACY),
            title="" if by_bits else table.setting.label,
        )
        for table in tables
        for by_bits in (False, True)
    ]
