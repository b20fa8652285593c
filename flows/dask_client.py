"""A client of a Dask scheduler that someone else started, or one line that says why there is none."""

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fedfisher_core.errors import InputError

if TYPE_CHECKING:
    from distributed import Client

_PATIENCE_SECONDS = 10


@contextmanager
def connected(scheduler: str, setting: str) -> "Iterator[Client]":
    """Connect to a scheduler.

    Args:
        scheduler: its address.
        setting: what names it, for messages.

    Yields:
        A client.

    Raises:
        InputError: nothing is there, it is no Dask scheduler, or certificates are missing; the message names the
            setting.
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
        # Dask would try again for as long as it waits.
        socket.create_connection(address, timeout=_PATIENCE_SECONDS).close()
        if not _own_security():
            asyncio.run(_greet(scheduler))
        client = Client(scheduler, timeout=_PATIENCE_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{setting} can't be reached: {error}") from error
    with client:
        yield client


def quieten() -> None:
    """Keep what Dask says of its own doings from the terminal, errors among it: they reach whoever called it as well.

    It sets its levels when it is imported, so that this comes after.
    """
    for name in ("distributed", "distributed.client", "prefect.task_runner.dask"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


async def _greet(scheduler: str) -> None:
    """Shake hands: a client waits without end for the answer of what is no Dask scheduler, such as its dashboard."""
    from distributed.comm import connect
    from distributed.security import Security

    greeting = connect(scheduler, timeout=_PATIENCE_SECONDS, **Security().get_connection_args("client"))
    try:
        (await asyncio.wait_for(greeting, _PATIENCE_SECONDS)).abort()
    except TimeoutError:
        raise OSError(f"what is there did not answer as a Dask scheduler does within {_PATIENCE_SECONDS} s") from None


def _require_certificates(scheme: str, setting: str) -> None:
    """Check that what asks for certificates has some; a client of Dask without them can't even be ended at once."""
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
    """Say whether users have put something in the place of Dask's certificates, which then knows better."""
    import dask

    return bool(dask.config.get("distributed.client.security-loader", None))
