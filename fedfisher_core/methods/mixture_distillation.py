"""Gaussian distillation with a normal distribution of each class, whose inputs are closer to real ones.

Where a client holds several classes, one normal distribution of its inputs draws what lies between them, of which its
network knows little. Here each class has a mean and a covariance. They take little more room: all classes share
one number of directions, and these are of low frequencies.
"""

from collections.abc import Sequence

from fedfisher_core.client.statistics.class_moments import ClassMoments
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.distillation.distilling import LearningRate, Samples, Steps, distilled
from fedfisher_core.methods.distillation.pseudo_inputs import mixture
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.fedfisher import (
    ConjugateGradients,
    FactoredDamping,
    KroneckerSolver,
    kronecker_objective,
    solver_validates,
)

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

    A class c is drawn by the client's label counts, and its inputs are N(mu_ic, Sigma_ic). The defaults are those of
    `gaussian_distillation`, and were not tuned for this method.

    Returns:
        The network after the last step, with the divergence on its inputs.
    """
    begun = solver.minimise(kronecker_objective(uploads, factored_damping=factored_damping), server).parameters
    draws = [mixture(upload[ClassMoments], server.spec.inputs.shape) for upload in uploads]
    return distilled(server, uploads, begun, draws, steps=steps, samples=samples, learning_rate=learning_rate)
