"""Peak memory of a whole run on full MNIST.

FEDFISHER_DATA_DIR=... python -m benchmarks.memory
"""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from fedfisher_core.models.memory import most_ever_held

_SETTINGS = """
name: memory
seeds: [0]
data: {dataset: mnist}
partition: {scheme: paper, alpha: [0.1], clients: [5]}
model: {name: mlp}
train: {epochs: 1}
methods: [fedavg, fisher_merge, regmean, fedfisher_diag, fedfisher_kfac]
"""


def main() -> None:
    """Print the peak of the largest process."""
    if "FEDFISHER_DATA_DIR" not in os.environ:
        print("skipped: FEDFISHER_DATA_DIR is not set, and this needs full MNIST")
        return
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "params.yaml").write_text(_SETTINGS)
        command = [str(Path(sys.executable).parent / "fedfisher"), "run"]
        environment = os.environ | {"FEDFISHER_DATA_DIR": str(Path(os.environ["FEDFISHER_DATA_DIR"]).resolve())}
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, env=environment)
    peak = most_ever_held(resource.RUSAGE_CHILDREN)
    print(f"full MNIST, mlp, 5 clients: peak {peak / 2**30:.2f} GiB (< 4)")


if __name__ == "__main__":
    main()
