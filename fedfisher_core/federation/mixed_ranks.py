"""Adapters whose rank differs between clients.

A client of rank r trains the network of the largest rank R, with zeros in all rows of A and columns of B after the
first r. These zeros have no gradient, so that the client trains what it would train without them. It sends r rows and
columns. The server puts the zeros back, which changes no product B A.
"""

from collections.abc import Collection, Mapping

from torch import Size, Tensor
from torch.nn import functional

from fedfisher_core.client.statistics.configured import ConfiguredStatistic
from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.client.uploads import Upload
from fedfisher_core.federation.federation import Federation
from fedfisher_core.models.spec import ModelSpec, Parameters


def with_rank_of(client: int, federation: Federation, weights: Parameters) -> Parameters:
    """Set to zero what a client's rank leaves out."""
    sent = federation.spec_of(client)
    return weights if sent == federation.spec else _filled(_cut(weights, sent.shapes()), federation.spec.shapes())


def cut(statistic: Statistic, configured: ConfiguredStatistic, sent: ModelSpec) -> Statistic:
    """Leave out what a client does not send.

    Args:
        statistic: of the network of the largest rank.
        sent: the network of the client's rank.
    """
    return configured.statistic.of(_cut(statistic.tensors, configured.shapes(sent)))


def filled(upload: Upload, uploads: Collection[ConfiguredStatistic], spec: ModelSpec) -> Upload:
    """Put back what a client has not sent, as zeros.

    Args:
        spec: the network of the largest rank.
    """
    found = {one.statistic: _filled(upload[one.statistic].tensors, one.shapes(spec)) for one in uploads}
    return Upload(upload.num_examples, {kind: kind.of(tensors) for kind, tensors in found.items()})


def _cut(tensors: Mapping[str, Tensor], shapes: Mapping[str, Size]) -> dict[str, Tensor]:
    return {name: tensors[name][tuple(map(slice, shape))] for name, shape in shapes.items()}


def _filled(tensors: Mapping[str, Tensor], shapes: Mapping[str, Size]) -> dict[str, Tensor]:
    made = {}
    for name, shape in shapes.items():
        # torch pads from the last dimension to the first.
        missing = [wanted - given for wanted, given in zip(shape, tensors[name].shape, strict=True)][::-1]
        made[name] = functional.pad(tensors[name], [side for count in missing for side in (0, count)])
    return made
