"""FedBEns: the product of the clients' Laplace posteriors, with their prior divided out."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import median_parameters, proportions, weighted_sum
from fedfisher_core.methods.shared.task_vectors import with_mean_statistics
from fedfisher_core.methods.solvers.first_order import adam
from fedfisher_core.methods.solvers.quadratic import kronecker_quadratic, with_penalty
from fedfisher_core.models.spec import Parameters

PriorVariance = Annotated[PositiveFloat, Field(description="of every weight, around 0")]
Temperature = Annotated[PositiveFloat, Field(description="T, by which likelihoods are raised to 1 / T")]
Steps = Annotated[PositiveInt, Field(description="of Adam")]
LearningRate = Annotated[PositiveFloat, Field(description="of Adam")]
LongestGradient = Annotated[PositiveFloat, Field(description="longer ones are scaled down to this length")]
Select = Annotated[bool, Field(description="return the iterate that scores best on the validation set, else the last")]
CheckEvery = Annotated[PositiveInt, Field(description="steps between two iterates that are scored")]


@method(
    "fedbens",
    uploads=(Weights, KFAC),
    reference="https://arxiv.org/abs/2503.15367",
    validates=lambda settings: settings.select,
)
def fedbens(
    server: Server,
    uploads: Sequence[Upload],
    *,
    prior_variance: PriorVariance = 0.1,
    temperature: Temperature = 0.1,
    steps: Steps = 300,
    learning_rate: LearningRate = 1e-3,
    longest_gradient: LongestGradient = 1.0,
    select: Select = True,
    check_every: CheckEvery = 30,
) -> Aggregate:
    """Climb to the mode of the product of posteriors over the prior (Talpini, Savi and Neglia 2025, one mode a client).

    With a prior p0 = N(0, v I), client i has the posterior q_i = N(w_i, (n_i A_i (x) G_i / T + I / v)^-1), and
    -sum_i log q_i(w) + (N - 1) log p0(w) is minimised. Up to a constant it is half of
    sum_i n_i / T (w - w_i)^T (A_i (x) G_i) (w - w_i) + |w - sum_i w_i|^2 / v: the prior counts once. Adam starts at the
    clients' coordinate-wise median. That is `One_shot_FL/main_FedBEns_kron.py` of the authors' repository
    (jacopot96/FedBEns) with one mode a client. Its README has mixtures of three modes, for which every client uploads
    three models, and predicts with three networks. Running statistics, which are measured rather than learnt, become
    their weighted mean. Without a selection that code returns the iterate of the lowest
    objective, and this the last.
    """
    models = [upload[Weights].tensors for upload in uploads]
    fishers = kronecker_quadratic(models, [upload[KFAC].factors for upload in uploads], proportions(uploads))
    posterior = with_penalty(
        fishers,
        factor=sum(upload.num_examples for upload in uploads) / temperature,
        penalty=1 / prior_variance,
        centre=weighted_sum(models, [1.0] * len(models)),
        start=median_parameters(models),
    )

    def settled(parameters: Mapping[str, Tensor]) -> Parameters:
        # The prior is of learnt weights. Around 0, it would move running statistics away from all clients'.
        return with_mean_statistics(server, parameters, models, proportions(uploads))

    score = server.scorer() if select else None
    solution = adam(
        posterior,
        steps=steps,
        learning_rate=learning_rate,
        longest=longest_gradient,
        check_every=check_every,
        score=None if score is None else lambda parameters: score(settled(parameters)),
    )
    return Aggregate.of(
        settled(solution.parameters), selected_step=float(solution.selected), objective=solution.objective
    )
