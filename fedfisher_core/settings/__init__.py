"""The typed settings that every layer shares."""

from fedfisher_core.settings.base import (
    MAX_UPLOADS,
    ByLabel,
    Count,
    Examples,
    Label,
    Name,
    Nonnegative,
    Positive,
    Seed,
    Several,
    Steps,
    Strict,
)
from fedfisher_core.settings.cells import Cell, Scope
from fedfisher_core.settings.choices import AVERAGE, PLAIN, Choice, ObjectiveChoice
from fedfisher_core.settings.clients import (
    NATURAL_SCHEMES,
    AuditSettings,
    DataSettings,
    ModelSettings,
    PartitionScheme,
    PartitionSettings,
    PrivacyMechanism,
    PrivacySettings,
    TrainSettings,
)
from fedfisher_core.settings.experiment import ExperimentSettings
from fedfisher_core.settings.federation import FederationSettings, RecipeSettings
from fedfisher_core.settings.fishers import FisherSettings
from fedfisher_core.settings.measures import MeasureSettings, PersonalisationSettings
from fedfisher_core.settings.methods import MethodEntry
from fedfisher_core.settings.places import BUCKET, CacheSettings, StorePlace
from fedfisher_core.settings.pretrained import PretrainedSettings
from fedfisher_core.settings.rounds import RoundSettings
from fedfisher_core.settings.shifts import NO_SHIFT, Shift, ShiftKind, shift_name
from fedfisher_core.settings.wire import Round, SecureSettings, WireFields, WireSettings
from fedfisher_core.settings.work import PageSettings, ReportSettings, RunSettings, TrackingSettings, WorkSettings

__all__ = [
    "AVERAGE",
    "BUCKET",
    "MAX_UPLOADS",
    "NATURAL_SCHEMES",
    "NO_SHIFT",
    "PLAIN",
    "AuditSettings",
    "ByLabel",
    "CacheSettings",
    "Cell",
    "Choice",
    "Count",
    "DataSettings",
    "Examples",
    "ExperimentSettings",
    "FederationSettings",
    "FisherSettings",
    "Label",
    "MeasureSettings",
    "MethodEntry",
    "ModelSettings",
    "Name",
    "Nonnegative",
    "ObjectiveChoice",
    "PageSettings",
    "PartitionScheme",
    "PartitionSettings",
    "PersonalisationSettings",
    "Positive",
    "PretrainedSettings",
    "PrivacyMechanism",
    "PrivacySettings",
    "RecipeSettings",
    "ReportSettings",
    "Round",
    "RoundSettings",
    "RunSettings",
    "Scope",
    "SecureSettings",
    "Seed",
    "Several",
    "Shift",
    "ShiftKind",
    "Steps",
    "StorePlace",
    "Strict",
    "TrackingSettings",
    "TrainSettings",
    "WireFields",
    "WireSettings",
    "WorkSettings",
    "shift_name",
]
