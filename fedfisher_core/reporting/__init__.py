"""Reports: result rows, their statistics, figures and the page that shows them. Needs no torch."""

from fedfisher_core.reporting.drawing import to_png, to_svg
from fedfisher_core.reporting.figures import accuracy_by_alpha_figure, accuracy_by_bits_figure, time_figure
from fedfisher_core.reporting.grids import confusion_figure, partition_figure
from fedfisher_core.reporting.page import PartitionView, ReportData, render_page, write_report
from fedfisher_core.reporting.published import Comparison, PublishedResult, compare, read_published
from fedfisher_core.reporting.rows import TIMING_FIELDS, Row, read_results, write_results
from fedfisher_core.reporting.summary import Setting, SettingSummary, summarise
from fedfisher_core.reporting.terminal import summary_table

__all__ = [
    "TIMING_FIELDS",
    "Comparison",
    "PartitionView",
    "PublishedResult",
    "ReportData",
    "Row",
    "Setting",
    "SettingSummary",
    "accuracy_by_alpha_figure",
    "accuracy_by_bits_figure",
    "compare",
    "confusion_figure",
    "partition_figure",
    "read_published",
    "read_results",
    "render_page",
    "summarise",
    "summary_table",
    "time_figure",
    "to_png",
    "to_svg",
    "write_report",
    "write_results",
]
