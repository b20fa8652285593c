"""Peak memory of the processes of a run with many clients on Dask: the command, its workers and Prefect's server.

FEDFISHER_DATA_DIR=... python -m benchmarks.many_clients [--clients 1000 10000] [--workers 2]

It runs configs/many_clients.yaml for each number of clients, from the partition of MNIST to the page. Wanted: neither
the command nor a worker holds 2 GiB, nor 1.3 times what it holds with the first number of clients.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import yaml

from benchmarks.trees import HERE

CONFIG = HERE / "configs" / "many_clients.yaml"
MOST, GROWTH = 2 * 2**30, 1.3
COMMAND, WORKER, SERVER = "command", "worker", "Prefect's server"


def kinds_of(command: psutil.Process) -> Iterator[tuple[str, int]]:
    """Identify the processes of a run.

    Args:
        command: the `fedfisher` command.

    Yields:
        Kind and number of each that lives.
    """
    yield COMMAND, command.pid
    for child in command.children(recursive=True):
        try:
            line = " ".join(child.cmdline())
        except psutil.NoSuchProcess:
            continue
        if "flows.server" in line:
            yield SERVER, child.pid
        elif "spawn_main" in line:
            yield WORKER, child.pid


def peak_of(process: int) -> int:
    """Most bytes that a process has held so far, or holds now where the system has no more; 0 where it has ended."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    except FileNotFoundError:
        found = None
    if found:
        return int(found[1]) * 1024
    try:
        return int(psutil.Process(process).memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def run(clients: int, workers: int) -> tuple[dict[str, int], float]:
    """Run one federation.

    Args:
        clients: how many.
        workers: of Dask.

    Returns:
        Most bytes of the largest process of each kind, and seconds of the command.

    Raises:
        subprocess.CalledProcessError: the command failed.
    """
    settings = yaml.safe_load(CONFIG.read_text())
    settings["partition"]["clients"] = [clients]
    settings["run"] = {"runner": "dask", "workers": workers}
    peaks: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "params.yaml").write_text(yaml.safe_dump(settings))
        environment = os.environ | {"FEDFISHER_DATA_DIR": str(Path(os.environ["FEDFISHER_DATA_DIR"]).resolve())}
        arguments = [str(Path(sys.executable).parent / "fedfisher"), "run"]
        begun = time.monotonic()
        with subprocess.Popen(arguments, cwd=folder, stdout=subprocess.DEVNULL, env=environment) as command:
            while command.poll() is None:
                for kind, process in kinds_of(psutil.Process(command.pid)):
                    peaks[kind] = max(peaks.get(kind, 0), peak_of(process))
                time.sleep(1)
        # Before the folder is removed, which takes minutes where it has very many files.
        seconds = time.monotonic() - begun
        if command.returncode:
            raise subprocess.CalledProcessError(command.returncode, arguments)
    return peaks, seconds


def main() -> None:
    """Print the peaks of each number of clients, and what was wanted of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 10000], help="of each run (1000 10000)")
    parser.add_argument("--workers", type=int, default=2, help="of Dask (2)")
    given = parser.parse_args()
    if "FEDFISHER_DATA_DIR" not in os.environ:
        print("skipped: FEDFISHER_DATA_DIR is not set, and this needs full MNIST")
        return
    first: dict[str, int] = {}
    for clients in given.clients:
        peaks, seconds = run(clients, given.workers)
        first = first or peaks
        held = ", ".join(f"{kind} {peak / 2**20:,.0f} MiB" for kind, peak in sorted(peaks.items()))
        print(f"{clients} clients: {seconds:.0f} s, {held}", flush=True)
        for kind in (COMMAND, WORKER):
            growth = peaks[kind] / first[kind]
            met = "met   " if peaks[kind] < MOST and growth <= GROWTH else "MISSED"
            print(f"{met}  {kind}: {growth:.2f} of what it held first (at most {GROWTH}), below 2 GiB", flush=True)


if __name__ == "__main__":
    main()
