"""The setting of where artifacts lie: a folder, or a bucket of an object store."""

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from fedfisher_core.settings.base import Folder, Strict, as_folder, without_credentials

_PART = "[A-Za-z0-9_.=-]+"
BUCKET = re.compile(rf"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{{1,61}}[a-z0-9])(?:/(?P<prefix>{_PART}(?:/{_PART})*))?")
"""What names a bucket, and a prefix of all names in it."""
_SCHEME = re.compile("[a-z][a-z0-9]+:/(?!/)")


def _place(value: Any) -> Path | str:
    if isinstance(value, str) and _SCHEME.match(value):
        raise ValueError("has one slash after its scheme; allowed: a folder, or s3://BUCKET/PREFIX")
    if isinstance(value, Path) or (isinstance(value, str) and "://" not in value):
        return as_folder(value)
    if not isinstance(value, str):
        raise ValueError("must be a folder, or s3://BUCKET/PREFIX")
    url = without_credentials(value).removesuffix("/")
    if BUCKET.fullmatch(url) is None:
        raise ValueError("must be a folder, or s3://BUCKET or s3://BUCKET/PREFIX, where BUCKET has 3 to 63 characters")
    return url


StorePlace = Annotated[Path | str, BeforeValidator(_place)]
"""A folder is a path, and a bucket is its address."""


class CacheSettings(Strict):
    """Where a machine keeps what it has read from a bucket."""

    folder: Folder = Field(Path(".artifacts"), description="in the working directory of each process")
    gib: float = Field(
        20,
        ge=0.1,
        le=10**6,
        description="its bound: what was used least recently goes first, and nothing that was used within an hour",
    )
