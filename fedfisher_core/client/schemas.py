"""How an upload is encoded, which client and server choose alike."""

from collections.abc import Sequence

from fedfisher_core.client.bound import BoundStatistic
from fedfisher_core.errors import InputError
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import WireSettings
from fedfisher_core.wire.budget import Family, fedavg_bits, fit
from fedfisher_core.wire.payload import Schema


def upload_schema(uploads: Sequence[BoundStatistic], spec: ModelSpec, wire: WireSettings) -> Schema:
    """Choose how statistics are encoded, which client and server do alike.

    Args:
        uploads: the statistics, in the order in which they are sent.
        spec: the network that clients train.
        wire: what an upload may cost.

    Returns:
        The schema of one client's payload.

    Raises:
        InputError: the statistics do not fit the budget in this format.
        UnsupportedLayerError: a statistic does not exist for a layer of the network.
    """
    match wire.budget:
        case "none":
            budget = None
        case "fedavg":
            budget = fedavg_bits(sum(parameter.numel() for parameter in spec.skeleton().parameters()))
        case int():
            budget = wire.budget
    statistics = [one.wire_spec(spec) for one in uploads]
    try:
        return fit(statistics, family=Family(wire.format), budget_bits=budget, factor_bits=wire.factor_bits)
    except InputError as error:
        setting = f"wire.budget={wire.budget}, wire.format={wire.format}"
        raise InputError(f"{setting}: {error}; or wire.budget=none") from error
