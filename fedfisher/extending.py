"""What a package of yours imports to add a method, a statistic, an objective, a server optimiser, a model or data.

    from fedfisher.extending import Aggregate, Server, Upload, Weights, method

The names of this module are public and keep their meaning within a major version. Everything in `fedfisher_core` may
move.
"""

from fedfisher_core.client.local import Local
from fedfisher_core.client.objectives.objective import Knowledge, Known, objective
from fedfisher_core.client.statistics.class_moments import ClassMoments
from fedfisher_core.client.statistics.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.input_moments import InputMoments
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.statistic import ServerView, Statistic, TensorStatistic
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.communication.wire.structure import EXACT, Fixed, Structure
from fedfisher_core.communication.wire.tensors import NONNEGATIVE, SIGNED, SYMMETRIC
from fedfisher_core.data.layouts import Images, Tokens, Vectors
from fedfisher_core.data.specs import DatasetSpec, datasets
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.server_optimisers.optimiser import server_optimiser
from fedfisher_core.methods.shared.averaging import Summation
from fedfisher_core.models.spec import ModelSpec, model

__all__ = [
    "EXACT",
    "KFAC",
    "NONNEGATIVE",
    "SIGNED",
    "SYMMETRIC",
    "Aggregate",
    "ClassMoments",
    "DatasetSpec",
    "DiagonalFisher",
    "Fixed",
    "Gram",
    "Images",
    "InputError",
    "InputMoments",
    "Knowledge",
    "Known",
    "LabelCounts",
    "Local",
    "ModelSpec",
    "Server",
    "ServerView",
    "Statistic",
    "Structure",
    "Summation",
    "TensorStatistic",
    "Tokens",
    "Upload",
    "Vectors",
    "Weights",
    "datasets",
    "method",
    "model",
    "objective",
    "server_optimiser",
]
