"""FedAvg: the mean of the clients' weights."""

from collections.abc import Sequence

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import Summation, Sums, mean_parameters, weights_term


def _of_sums(server: Server, sums: Sums) -> Aggregate:
    return Aggregate.of({name: tensor.float() for name, tensor in sums.mean("weights").items()})


@method(
    "fedavg",
    uploads=(Weights,),
    reference="https://arxiv.org/abs/1602.05629",
    sums=Summation(weights_term, _of_sums),
)
def fedavg(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Average the weights by the clients' numbers of examples (McMahan et al. 2017, Algorithm 1)."""
    return Aggregate.of(mean_parameters(uploads))
