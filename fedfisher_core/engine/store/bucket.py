"""A bucket of an object store that speaks S3: bytes by name, some of which are only ever written once.

Address and credentials of the service are where all tools look for them: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and so on,
or the files in ~/.aws. None of them is a setting, so that none reaches an artifact, a report or a log.
"""

import logging
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from fedfisher_core.engine.errors import CorruptArtifactError, InputError, OutputError, anonymous
from fedfisher_core.engine.installed import require_packages
from fedfisher_core.settings import BUCKET

log = logging.getLogger("fedfisher")

_CONNECT_SECONDS, _READ_SECONDS = 5, 60
_PAUSES_SECONDS: tuple[float, ...] = (1, 3, 9)
"""Between the tries of a request."""
_AT_ONCE = 8
_NOT_THERE = frozenset({"NoSuchKey", "NotFound", "404"})
_THERE_ALREADY = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412"})
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""Codes of HTTP of what another try may get."""
_PASSING_CODES = frozenset({"RequestTimeout", "OperationAborted"})
_connecting = Lock()


class BucketError(OutputError):
    """A bucket that does not answer, however often it is asked; what it holds is kept, and it may answer later."""


@dataclass(frozen=True)
class Bucket:
    """A bucket, or what has one prefix there.

    Args:
        url: `s3://BUCKET/PREFIX`, as `run.store` allows it.
    """

    url: str

    def read(self, name: str, *, most_bytes: int) -> bytes | None:
        """Read an object.

        Args:
            name: after the prefix.

        Returns:
            Its content; None if there is no such object.

        Raises:
            CorruptArtifactError: it has more bytes.
            InputError: the bucket refuses.
            BucketError: it does not answer.
        """

        def get(s3: Any) -> bytes:
            found = s3.get_object(**self._location(name))
            if "ContentLength" not in found:
                raise InputError(
                    f"run.store={self.url!r} can't be read: an answer (by {anonymous(_client().meta.endpoint_url)}) "
                    "has no length; allowed: a service that speaks S3 in AWS_ENDPOINT_URL"
                )
            if found["ContentLength"] > most_bytes:
                found["Body"].close()
                raise CorruptArtifactError(
                    f"{self.url}/{name} has {found['ContentLength']} bytes; allowed: {most_bytes}"
                )
            return bytes(found["Body"].read())

        found: bytes | None = self._ask("read", get, unless=_NOT_THERE)
        return found

    def write(self, objects: Mapping[str, bytes]) -> None:
        """Write objects, several at a time, in the place of those that are there.

        Raises:
            InputError: the bucket refuses.
            BucketError: it does not answer.
        """

        def put(name: str) -> None:
            self._ask("written", lambda s3: s3.put_object(**self._location(name), Body=objects[name]))

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(put, objects))

    def write_new(self, name: str, content: bytes) -> bool:
        """Write an object if there is none of its name; of all who try, one succeeds.

        Args:
            name: after the prefix.

        Returns:
            Whether it was written.

        Raises:
            InputError: the bucket refuses.
            BucketError: it does not answer.
        """

        def put(s3: Any) -> Any:
            return s3.put_object(**self._location(name), Body=content, IfNoneMatch="*")

        return self._ask("written", put, unless=_THERE_ALREADY) is not None

    def remove_unchanged(self, name: str, content: bytes) -> None:
        """Remove an object that was found to be of no use, unless another machine has put something in its place.

        Args:
            name: after the prefix.

        Raises:
            InputError: the bucket refuses.
            BucketError: it does not answer.
        """
        try:
            if self.read(name, most_bytes=len(content)) == content:
                self.remove(name)
        except CorruptArtifactError as error:
            log.debug("%s", error)

    def remove(self, name: str) -> None:
        """Remove an object, if it is there.

        Args:
            name: after the prefix.

        Raises:
            InputError: the bucket refuses.
            BucketError: it does not answer.
        """
        self._ask("written", lambda s3: s3.delete_object(**self._location(name)), unless=_NOT_THERE)

    def _location(self, name: str) -> dict[str, str]:
        found = BUCKET.fullmatch(self.url)
        assert found is not None
        prefix = found["prefix"]
        return {"Bucket": found["bucket"], "Key": f"{prefix}/{name}" if prefix else name}

    def _ask(self, done: str, request: Callable[[Any], Any], *, unless: frozenset[str] = frozenset()) -> Any:
        """Make a request, more than once where that may help; None where the service refuses it with one of some codes.

        What is read of an answer is part of the request: a connection may be lost in the middle of it.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        for pause in (*_PAUSES_SECONDS, None):
            try:
                return request(_client())
            except ClientError as error:
                if error.response["Error"].get("Code") in unless:
                    return None
                reason: Exception = error
                service = f" (by {anonymous(_client().meta.endpoint_url)})"
            except BotoCoreError as error:
                # Where it has reached no service, its words say which.
                reason, service = error, ""
            except InputError:
                # Of what an answer lacks.
                raise
            except ValueError:
                # Botocore's words repeat what was given, which may hold a password.
                raise InputError(
                    f"run.store={self.url!r} can't be {done}: AWS_ENDPOINT_URL is no address; allowed: "
                    "http://HOST:PORT or https://HOST:PORT"
                ) from None
            said = f"run.store={self.url!r} can't be {done}: {anonymous(str(reason))}{service}{_remedy(reason)}"
            if not _may_pass(reason):
                raise InputError(said) from reason
            if pause is not None:
                # Many workers lose a service at the same moment, and should not all come back at the next.
                time.sleep(pause * random.uniform(0.5, 1.5))
        raise BucketError(said) from reason


def require_library(url: str) -> None:
    """Check that buckets can be reached at all.

    Raises:
        InputError: what speaks to them is not installed.
    """
    require_packages("boto3", extra="s3", who=f"run.store={url!r}")


def _remedy(error: Exception) -> str:
    """Say what would mend what no service has said."""
    from botocore.exceptions import NoCredentialsError, SSLError

    if isinstance(error, NoCredentialsError):
        return "; allowed: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile in ~/.aws"
    if isinstance(error, SSLError):
        return "; allowed: certificates that are known here, or their file in AWS_CA_BUNDLE"
    return ""


def _may_pass(error: Exception) -> bool:
    """Say whether a request may go well another time."""
    from botocore.exceptions import ClientError, ConnectionError, HTTPClientError, IncompleteReadError

    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return status in _PASSING or error.response["Error"].get("Code") in _PASSING_CODES
    return isinstance(error, ConnectionError | HTTPClientError | IncompleteReadError)


def _client() -> Any:
    """The connections of this process, which its threads share; they are made by one."""
    with _connecting:
        return _connected()


@cache
def _connected() -> Any:
    from boto3.session import Session
    from botocore.config import Config

    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        # `Bucket` tries again, and reads answers to their end.
        retries={"total_max_attempts": 1},
        max_pool_connections=2 * _AT_ONCE,
        # Artifacts have digests of their own, and not every service knows the checksums that S3 has added.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    client = Session().client("s3", config=config)
    if urlsplit(client.meta.endpoint_url).hostname == "::1":
        # Botocore looks for this one in brackets, which Prefect's client does not allow in `no_proxy`.
        client = Session().client("s3", config=config.merge(Config(proxies={})))
    return client
