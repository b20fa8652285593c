"""FedAvg: the mean of the clients' weights."""

from collections.abc import Sequence

from fedfisher_core.client.upload import Upload
from fedfisher_core.client.weights import Weights
from fedfisher_core.methods.averaging import mean_parameters
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.sums import Summation, Sums, weights_term


def _of_sums(server: Server, sums: Sums) -> Aggregate:
    return Aggregate.of({name: tensor.float() for name, tensor in sums.mean("weights").items()})


@method(
    "fedavg",
    uploads=(Weights,),
    reference="https://arxiv.org/abs/1602.05629",
    sums=Summation(weights_term, _of_sums),
)
def fedavg(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Average the weights by the clients' numbers of examples (McMahan et al. 2017, Algorithm 1).

    Args:
        server: not used.
        uploads: the weights w_i.

    Returns:
        sum_i p_i w_i.
    """
    return Aggregate.of(mean_parameters(uploads))
