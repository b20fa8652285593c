"""Merge networks of your own by any method of the benchmark.

    clients = [fedfisher.Client(model, loader) for model, loader in trained]
    merged = fedfisher.merge(clients, method="fedfisher_kfac")

Nothing is registered, and no settings file is needed: a network is a `torch.nn.Module`, its examples are any loader
of inputs and labels, and the result is a module. `docs/merging.md` shows more.
"""

from fedfisher.adapters import Adapter, merge_adapters, read_adapter, write_adapter
from fedfisher.client import Client, Upload
from fedfisher.files import ClientFile, read_client, write_client
from fedfisher.merging import Ensemble, Preprocessing, merge
from fedfisher.network import Network, replace_batch_norm
from fedfisher_core.client.statistics import statistic as _statistic
from fedfisher_core.engine.errors import DivergedClientError, InputError
from fedfisher_core.methods import method as _method
from fedfisher_core.privacy.canaries import Canary

__all__ = [
    "Adapter",
    "Canary",
    "Client",
    "ClientFile",
    "DivergedClientError",
    "Ensemble",
    "InputError",
    "Network",
    "Preprocessing",
    "Upload",
    "merge",
    "merge_adapters",
    "methods",
    "read_adapter",
    "read_client",
    "replace_batch_norm",
    "statistics",
    "write_adapter",
    "write_client",
]


def methods() -> dict[str, str]:
    """Return a one-line summary of each method, by name."""
    return {name: _method.methods.get(name).summary for name in _method.methods}


def statistics() -> list[str]:
    """List the names of the statistics that clients can compute."""
    return list(_statistic.statistics)
