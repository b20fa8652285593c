"""Gaussian distillation with a normal distribution of each class, whose inputs are closer to real ones.

Where a client holds several classes, one normal distribution of its inputs draws what lies between them, of which its
network knows little. Here each class has a mean and a covariance. They take little more room: all classes share out
one number of directions, and these are of low frequencies.
"""

from collections.abc import Sequence

from fedfisher_core.client.class_moments import ClassMoments
from fedfisher_core.client.kfac import KFAC
from fedfisher_core.client.upload import Upload
from fedfisher_core.client.weights import Weights
from fedfisher_core.distillation.pseudo_inputs import mixture
from fedfisher_core.methods.distilling import LearningRate, Samples, Steps, distilled
from fedfisher_core.methods.fedfisher import (
    ConjugateGradients,
    FactoredDamping,
    KroneckerSolver,
    kronecker_objective,
    solver_validates,
)
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server

DEFAULT_SOLVER = ConjugateGradients()


@method(
    "mixture_distillation",
    uploads=(Weights, KFAC, ClassMoments),
    reference="https://arxiv.org/abs/2403.12329",
    validates=solver_validates,
    merges=False,
)
def mixture_distillation(
    server: Server,
    uploads: Sequence[Upload],
    *,
    solver: KroneckerSolver = DEFAULT_SOLVER,
    factored_damping: FactoredDamping = 0.0,
    steps: Steps = 300,
    samples: Samples = 64,
    learning_rate: LearningRate = 1e-3,
) -> Aggregate:
    """Minimise sum_i p_i E KL(f_i(x_i) || f(x_i)) from FedFisher(K-FAC), where x_i is normal within each class.

    Of a class c that is drawn by the client's label counts, inputs are N(mu_ic, Sigma_ic). The defaults are those of
    `gaussian_distillation`, and were not tuned for this method.

    Args:
        server: draws the inputs, and scores iterates of the solver where that selects among them.
        uploads: the weights w_i, the factors A_i and G_i, and the moments of each class.
        solver: how FedFisher's objective is minimised.
        factored_damping: of this objective, see `kronecker_objective`.

    Returns:
        The network after the last step, with the divergence on its inputs.
    """
    begun = solver.minimise(kronecker_objective(uploads, factored_damping=factored_damping), server).parameters
    draws = [mixture(upload[ClassMoments], server.spec.inputs.shape) for upload in uploads]
    return distilled(server, uploads, begun, draws, steps=steps, samples=samples, learning_rate=learning_rate)
