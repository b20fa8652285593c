"""What the variants of FedFisher share: how their objective is minimised."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeFloat, PositiveFloat, PositiveInt

from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import proportions
from fedfisher_core.methods.solvers import exact as closed_form
from fedfisher_core.methods.solvers import exact as conjugate_gradients
from fedfisher_core.methods.solvers import first_order as gradient_descent
from fedfisher_core.methods.solvers import paper
from fedfisher_core.methods.solvers.quadratic import Quadratic, kronecker_quadratic
from fedfisher_core.methods.solvers.solution import Score, Solution
from fedfisher_core.settings import Strict


class Solver(Strict, ABC):
    """A way to minimise sum_i p_i (w - w_i)^T F_i (w - w_i), with its settings."""

    @property
    def validates(self) -> bool:
        """Whether it selects on the server's validation images."""
        return False

    @abstractmethod
    def minimise(self, quadratic: Quadratic, server: Server) -> Solution:
        """Minimise the objective; the server's validation set scores iterates, where the solver selects among them."""


class Iterative(Solver):
    """A solver that can select one of its iterates."""

    steps: PositiveInt = Field(2000, description="most steps")
    select: bool = Field(False, description="return the iterate that scores best on the validation set, else the last")
    check_every: PositiveInt = Field(100, description="steps between two iterates that are scored")

    @property
    def validates(self) -> bool:
        """See `Solver.validates`."""
        return self.select

    def _score(self, server: Server) -> Score | None:
        return server.scorer() if self.select else None

    @property
    def _interval(self) -> int:
        """Steps between two measurements; without a selection, only the end is measured."""
        return self.check_every if self.select else self.steps


class ConjugateGradients(Iterative):
    """Conjugate gradients from the mean of the clients.

    The damping was chosen, and the steps compared, on training images that no client trained on, of MNIST with the mlp
    and of Fashion-MNIST with LeNet, seeds 100 to 104 (reports/solvers.txt).

    The solver runs in single precision. There 80 steps on Kronecker factors of LeNet end 4 % of the weights' norm and
    up to 0.2 percentage points of accuracy away from where they end in double precision, and 20 steps up to 2.0. A
    choice in double precision would leave steps and damping as they are (reports/precision.txt).
    """

    name: Literal["conjugate_gradients"] = "conjugate_gradients"
    steps: PositiveInt = Field(80, description="most steps; few of them regularise")
    check_every: PositiveInt = Field(10, description="steps between two iterates that are scored")
    damping: NonNegativeFloat = Field(0.1, description="pull to the mean, as a multiple of a block's mean eigenvalue")
    tolerance: PositiveFloat = Field(1e-5, description="a block stops when its residual has fallen by this factor")

    def minimise(self, quadratic: Quadratic, server: Server) -> Solution:
        """See `Solver`."""
        return conjugate_gradients.conjugate_gradients(
            quadratic,
            steps=self.steps,
            tolerance=self.tolerance,
            damping=self.damping,
            check_every=self._interval,
            score=self._score(server),
        )


class GradientDescent(Iterative):
    """Gradient descent with step 1 / lambda_max from the mean of the clients (FedFisher, Lemma 1)."""

    name: Literal["gradient_descent"] = "gradient_descent"
    tolerance: PositiveFloat = Field(1e-6, description="it stops when the residual has fallen by this factor")

    def minimise(self, quadratic: Quadratic, server: Server) -> Solution:
        """See `Solver`."""
        return gradient_descent.gradient_descent(
            quadratic,
            steps=self.steps,
            tolerance=self.tolerance,
            check_every=self._interval,
            score=self._score(server),
        )


class ClosedForm(Solver):
    """The minimiser nearest to the mean of the clients, by the pseudo-inverse."""

    name: Literal["closed_form"] = "closed_form"

    def minimise(self, quadratic: Quadratic, server: Server) -> Solution:
        """See `Solver`."""
        return closed_form.closed_form(quadratic)


class PaperDiagonal(Iterative):
    """The optimiser of FedFisher's authors, as they run it on diagonal Fishers."""

    name: Literal["paper"] = "paper"
    select: bool = Field(True, description="return the iterate that scores best on the validation set, else the last")

    def minimise(self, quadratic: Quadratic, server: Server) -> Solution:
        """See `Solver`."""
        return paper.paper_diagonal(quadratic, steps=self.steps, check_every=self._interval, score=self._score(server))


class PaperKronecker(Iterative):
    """The optimiser of FedFisher's authors, as they run it on Kronecker factors."""

    name: Literal["paper"] = "paper"
    select: bool = Field(True, description="return the iterate that scores best on the validation set, else the last")

    def minimise(self, quadratic: Quadratic, server: Server) -> Solution:
        """See `Solver`."""
        return paper.paper_kronecker(quadratic, steps=self.steps, check_every=self._interval, score=self._score(server))


def _by_name(value: Any) -> Any:
    """Let a solver with its default settings be written as its name."""
    return {"name": value} if isinstance(value, str) else value


_Named = BeforeValidator(_by_name)
_Choice = Field(discriminator="name")
DiagonalSolver = Annotated[ClosedForm | ConjugateGradients | GradientDescent | PaperDiagonal, _Choice, _Named]
KroneckerSolver = Annotated[ConjugateGradients | GradientDescent | PaperKronecker, _Choice, _Named]
DenseSolver = Annotated[ClosedForm | ConjugateGradients | GradientDescent, _Choice, _Named]
FactoredDamping = Annotated[
    float, Field(ge=0, le=1e6, description="lambda of A_i (x) G_i + lambda I, divided over the factors")
]


TraceFloor = Annotated[
    float, Field(ge=0, le=10, description="least trace of a client's Fisher, as a part of the mean; 0 for none")
]


def kronecker_objective(uploads: Sequence[Upload], *, factored_damping: float, trace_floor: float = 0.0) -> Quadratic:
    """Form sum_i p_i (w - w_i)^T (A_i (x) G_i) (w - w_i) (FedFisher, equation 7).

    Args:
        uploads: the weights w_i and the factors A_i, G_i of every layer.
        factored_damping: see `Kronecker.damped`; every client's factors are damped before they are summed.
        trace_floor: see `raised`.
    """
    shares = proportions(uploads)
    damped: list[Mapping[str, Kronecker]] = [
        {name: block.damped(factored_damping) for name, block in upload[KFAC].factors.items()} for upload in uploads
    ]
    if trace_floor:
        damped = raised(damped, shares, trace_floor)
    return kronecker_quadratic([upload[Weights].tensors for upload in uploads], damped, shares)


def raised(
    fishers: Sequence[Mapping[str, Kronecker]], shares: Sequence[float], floor: float
) -> list[Mapping[str, Kronecker]]:
    """Multiply Fishers whose trace is below a part of the mean over clients, weighted by their shares.

    A client that is sure of its classes has a Fisher near 0, and would hardly be heard. A Fisher of zeros stays so.
    """
    traces = [trace_of(one) for one in fishers]
    least = floor * sum(share * trace for share, trace in zip(shares, traces, strict=True))
    return [
        {name: block.times(least / trace) for name, block in one.items()} if 0 < trace < least else one
        for one, trace in zip(fishers, traces, strict=True)
    ]


def trace_of(fisher: Mapping[str, Kronecker]) -> float:
    """The trace of a client's Fisher over all layers."""
    return sum(block.trace for block in fisher.values())


LEAST_TRACE = "least_trace"


def least_trace(uploads: Sequence[Upload]) -> float:
    """How little the client counts that counts least: its p_i tr F_i, divided by the mean over clients.

    A client that is sure of its classes has a Fisher near 0. Like one with few examples, it is hardly heard then,
    though it may be the only one that knows these classes.
    """
    shares = proportions(uploads)
    traces = [share * trace_of(upload[KFAC].factors) for share, upload in zip(shares, uploads, strict=True)]
    return min(traces) * len(traces) / sum(traces) if any(traces) else 1.0


def solver_validates(settings: Any) -> bool:
    """Say whether a variant of FedFisher looks at the server's validation images, from its settings."""
    return settings.solver.validates


def aggregate_by(solver: Solver, quadratic: Quadratic, server: Server) -> Aggregate:
    """Minimise the FedFisher objective.

    Returns:
        The global model, with the steps done, the step that was selected, the objective there and its score if there
        is one.
    """
    solution = solver.minimise(quadratic, server)
    details = {
        "steps": float(solution.iterations),
        "selected_step": float(solution.selected),
        "objective": solution.objective,
    }
    scores = [one.score for one in solution.history if one.iteration == solution.selected and one.score is not None]
    if scores:
        details["validation_accuracy"] = scores[0]
    return Aggregate(networks=(solution.parameters,), details=details)
