"""The typed settings that every layer shares."""

from fedfisher_core.settings.base import Experiment, Name, Strict, as_mapping, as_tuple
from fedfisher_core.settings.benchmark import Cell, Scope, Settings
from fedfisher_core.settings.clients import (
    DataSettings,
    FisherSettings,
    ModelSettings,
    PartitionScheme,
    PartitionSettings,
    PrivacyMechanism,
    PrivacySettings,
    TrainSettings,
)
from fedfisher_core.settings.wire import Round, SecureSettings, WireSettings
from fedfisher_core.settings.work import PageSettings, ReportSettings, RunSettings, TrackingSettings, WorkSettings

__all__ = [
    "Cell",
    "DataSettings",
    "Experiment",
    "FisherSettings",
    "ModelSettings",
    "Name",
    "PageSettings",
    "PartitionScheme",
    "PartitionSettings",
    "PrivacyMechanism",
    "PrivacySettings",
    "ReportSettings",
    "Round",
    "RunSettings",
    "Scope",
    "SecureSettings",
    "Settings",
    "Strict",
    "TrackingSettings",
    "TrainSettings",
    "WireSettings",
    "WorkSettings",
    "as_mapping",
    "as_tuple",
]
