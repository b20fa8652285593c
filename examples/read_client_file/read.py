"""Read a client's file with NumPy alone: `python read.py client.safetensors`."""

import hashlib
import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np


def read(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """Read a client's file.

    Returns:
        Its header, see header.schema.json, and its tensors by statistic and name.
    """
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    entries, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    header = json.loads(entries["__metadata__"]["fedfisher_client"])
    if header["version"] != 1:
        raise ValueError(f"format version {header['version']}; allowed: 1")
    tensors: dict[str, dict[str, np.ndarray]] = {}
    for statistic, said in header["statistics"].items():
        tensors[statistic] = {}
        for name, shape in said["shapes"].items():
            first, last = entries[f"{statistic}/{name}"]["data_offsets"]
            tensors[statistic][name] = np.frombuffer(body[first:last], "<f4").reshape(shape)
    digest = hashlib.sha256()
    for name, weights in sorted(tensors["weights"].items()):
        digest.update(name.encode() + b"\0" + weights.tobytes())
    if digest.hexdigest() != header["weights_digest"]:
        raise ValueError("the statistics are of other weights")
    return header, tensors


if __name__ == "__main__":
    header, tensors = read(Path(sys.argv[1]))
    print(f"{header['examples']} examples of {header['network']['classes']} classes")
    for statistic, named in tensors.items():
        print(f"{statistic}: {', '.join(f'{name} {one.shape}' for name, one in named.items())}")
