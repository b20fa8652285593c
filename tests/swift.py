"""An object store that speaks S3, for tests: OpenStack Swift with one disk, in an environment of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from boto3.session import Session

from tests.servers import free_port, stopped_after, wait_for_port

PROGRAMS = Path(sys.prefix) / "swift" / "bin"
"""Where `make test` installs it."""

BUCKET = "benchmark"
SECRET = "a-secret-of-the-store"
_KEY = "test:tester"

_SERVER = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
fallocate_reserve = 0
user = {user}

[pipeline:main]
pipeline = {pipeline}

[app:{kind}-server]
use = egg:swift#{kind}
"""

_PROXY = (
    _SERVER
    + """
account_autocreate = true

[filter:s3api]
use = egg:swift#s3api

[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = {secret} .admin

[filter:listing_formats]
use = egg:swift#listing_formats

[filter:catch_errors]
use = egg:swift#catch_errors
"""
)

_CONFIG = """
[swift-hash]
swift_hash_path_prefix = of
swift_hash_path_suffix = tests

[storage-policy:0]
name = one
default = yes
"""


@contextmanager
def object_store(folder: Path) -> Iterator[dict[str, str]]:
    """Run an object store that has one empty bucket.

    Args:
        folder: of its disk.

    Yields:
        Environment variables that its users need.
    """
    if not PROGRAMS.is_dir():
        pytest.skip(f"no object store in {PROGRAMS.parent}: `make test` installs one")
    (folder / "devices" / "disk").mkdir(parents=True)
    (folder / "swift.conf").write_text(_CONFIG)
    with ExitStack() as stack:
        for kind in ("account", "container", "object"):
            port = free_port()
            _make_ring(folder / f"{kind}.builder", port)
            stack.enter_context(_server(folder, kind, port, _SERVER, f"{kind}-server"))
        port = free_port()
        stack.enter_context(
            _server(folder, "proxy", port, _PROXY, "catch_errors listing_formats s3api tempauth proxy-server")
        )
        environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        Session(_KEY, SECRET, region_name="us-east-1").client(
            "s3", endpoint_url=environment["AWS_ENDPOINT_URL"]
        ).create_bucket(Bucket=BUCKET)
        yield environment


@contextmanager
def _server(folder: Path, kind: str, port: int, template: str, pipeline: str) -> Iterator[None]:
    config = folder / f"{kind}.conf"
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    config.write_text(template.format(port=port, folder=folder, user=user, kind=kind, pipeline=pipeline, secret=SECRET))
    with stopped_after([str(PROGRAMS / f"swift-{kind}-server"), str(config)], {"SWIFT_DIR": str(folder)}):
        wait_for_port(port)
        yield


def _make_ring(builder: Path, port: int) -> None:
    """Have one disk hold everything once."""
    for words in (("create", "4", "1", "0"), ("add", f"r1z1-127.0.0.1:{port}/disk", "1"), ("rebalance",)):
        subprocess.run([PROGRAMS / "swift-ring-builder", builder, *words], check=True, capture_output=True)
