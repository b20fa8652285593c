"""A client of a Dask scheduler that runs already, or one line that gives the reason why there is none."""

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fedfisher_core.engine.errors import InputError

if TYPE_CHECKING:
    from distributed import Client

_PATIENCE_SECONDS = 10


@contextmanager
def connected(scheduler: str, setting: str) -> "Iterator[Client]":
    """Connect to a scheduler, which messages name by its setting.

    Raises:
        InputError: nothing answers, it is no Dask scheduler, or certificates are missing.
    """
    from distributed import Client

    quieten()
    try:
        place = urlsplit(scheduler)
        address = (place.hostname, place.port)
    except ValueError as error:
        raise InputError(f"{setting}: {error}; allowed: tcp://HOST:PORT or tls://HOST:PORT") from error
    _require_certificates(place.scheme, setting)
    try:
        # Dask would try again until its time-out.
        socket.create_connection(address, timeout=_PATIENCE_SECONDS).close()
        if not _own_security():
            asyncio.run(_greet(scheduler))
        client = Client(scheduler, timeout=_PATIENCE_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{setting} can't be reached: {error}") from error
    with client:
        yield client


def quieten() -> None:
    """Keep Dask's log messages from the terminal; its errors reach the caller as well.

    Dask sets its log levels when it is imported, so call this afterwards.
    """
    for name in ("distributed", "distributed.client", "prefect.task_runner.dask"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


async def _greet(scheduler: str) -> None:
    """Shake hands with a scheduler, with a time-out: a client would wait for ever for what is no scheduler."""
    from distributed.comm import connect
    from distributed.security import Security

    greeting = connect(scheduler, timeout=_PATIENCE_SECONDS, **Security().get_connection_args("client"))
    try:
        (await asyncio.wait_for(greeting, _PATIENCE_SECONDS)).abort()
    except TimeoutError:
        raise OSError(f"it did not answer as a Dask scheduler does within {_PATIENCE_SECONDS} s") from None


def _require_certificates(scheme: str, setting: str) -> None:
    """Check that a TLS client has certificates; without them, Dask's client can't even be ended at once."""
    from distributed.security import Security

    if scheme != "tls" or _own_security():
        return
    try:
        known = Security().get_connection_args("client").get("ssl_context") is not None
    except (OSError, ValueError) as error:
        raise InputError(f"{setting}: the certificates of Dask's configuration can't be used: {error}") from error
    if not known:
        raise InputError(
            f"{setting} needs certificates; allowed: their files in DASK_DISTRIBUTED__COMM__TLS__CA_FILE and "
            "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT (and KEY), or in Dask's configuration; or tcp://HOST:PORT"
        )


def _own_security() -> bool:
    """Say whether users have replaced Dask's certificates by a loader of their own, which is then not checked."""
    import dask

    return bool(dask.config.get("distributed.client.security-loader", None))
