"""What all settings have in common."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="folder name of the report")]


def as_tuple(value: Any) -> Any:
    """Let a setting with several values be given as one."""
    return value if value is None or isinstance(value, list | tuple) else (value,)


def as_mapping(value: Any) -> Any:
    """Let a mapping to settings be given as a list of its keys."""
    return {key: {} for key in value} if isinstance(value, list | tuple) else value


class Strict(BaseModel):
    """Frozen settings that refuse keys they do not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
