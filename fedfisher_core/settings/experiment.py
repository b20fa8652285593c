"""What the settings of all experiments have in common."""

import hashlib
import json
from typing import Any

import yaml

from fedfisher_core.settings.base import Line, Name, Strict
from fedfisher_core.settings.work import PageSettings, TrackingSettings, WorkSettings

_LAST = ("run", "tracking", "report")


class ExperimentSettings(Strict):
    """What one configuration file describes; a subclass says in `experiment` of which experiment, by its name."""

    name: Name
    experiment: Line
    run: WorkSettings
    tracking: TrackingSettings
    report: PageSettings

    def digest(self) -> str:
        """Digest of all settings but the name, 8 hexadecimal digits."""
        content = json.dumps(self.model_dump(mode="json", exclude={"name"}), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:8]

    def to_yaml(self) -> str:
        """Write the settings as a configuration file."""
        written = self.model_dump(mode="json")
        ordered = {key: value for key, value in written.items() if key not in _LAST} | {
            key: written[key] for key in _LAST
        }
        return yaml.safe_dump(ordered, sort_keys=False, allow_unicode=True)

    def shown(self) -> dict[str, Any]:
        """What a report shows of the settings beside its own title and notes."""
        shown = self.model_dump(mode="json", exclude={"report"})
        for name in self.named_groups():
            shown[name] = {label: chosen or "defaults" for label, chosen in shown[name].items()}
        return shown

    def named_groups(self) -> list[str]:
        """List the settings that map names to settings, such as the methods."""
        return [name for name in type(self).model_fields if isinstance(getattr(self, name), dict)]
