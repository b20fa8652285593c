"""The environment that Prefect and MLflow need before they are imported, in this process and all that it starts."""

import os
import re
import socket
import sys

_QUIET = {
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}
"""Switches telemetry off."""

_HERE = ("localhost", "127.0.0.1", "::1", "0.0.0.0")
_BRACKETED = re.compile(r"\[(.+)\](:\d+)?")


def prepare() -> None:
    """Switch telemetry off unless the user has set it, and use no proxy for addresses of this machine."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    if sys.platform == "darwin" or any(name.lower().endswith("_proxy") for name in os.environ):
        _ask_this_machine_directly()


def _ask_this_machine_directly() -> None:
    """Name this machine in `no_proxy`, and write proxies in the one form that all libraries read."""
    from urllib.request import getproxies

    proxies = getproxies()
    excluded = proxies.pop("no", "")
    if not proxies:
        return
    for scheme, address in proxies.items():
        # Desktops write socks://, which httpx and requests do not know. On macOS proxies may be in no variable at all.
        written = re.sub("^socks://", "socks5://", address)
        os.environ[f"{scheme}_proxy"] = os.environ[f"{scheme.upper()}_PROXY"] = written
    if excluded.strip() != "*":
        # Prefect's client fails on an address in brackets.
        given = [_BRACKETED.sub(r"\1", host.strip()) for host in excluded.split(",") if host.strip()]
        excluded = ",".join(dict.fromkeys([*given, *_HERE, socket.gethostname()]))
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = excluded
