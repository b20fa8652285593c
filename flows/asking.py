"""Asking a server over HTTP before a run does, by the same proxies as the server's own client."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from httpx import Response


@contextmanager
def answered(address: str, *, words: str | None = None, seconds: float) -> "Iterator[Response]":
    """Ask for a page, and yield the answer, whose content is still to be read.

    Args:
        words: for the header Authorization.
        seconds: to wait for each part of the answer.

    Raises:
        OSError: there is no answer; the message gives the reason.
    """
    # A run that only writes files does not need it so early.
    import httpx

    try:
        with (
            httpx.Client(verify=ssl.create_default_context(), timeout=seconds, follow_redirects=True) as client,
            client.stream("GET", address, headers={"Authorization": words} if words else {}) as answer,
        ):
            yield answer
    except (httpx.HTTPError, httpx.InvalidURL, ImportError, ValueError) as error:
        raise OSError(str(error) or type(error).__name__) from error


def unreached(address: str, *, seconds: float) -> str:
    """Return the reason why a page can't be read; empty where it can."""
    try:
        with answered(address, seconds=seconds) as answer:
            return answer.reason_phrase or str(answer.status_code) if answer.is_error else ""
    except OSError as error:
        return str(error)
