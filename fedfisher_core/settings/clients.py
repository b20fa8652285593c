"""Settings of the clients: their examples, their training and their privacy."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    model_validator,
)

from fedfisher_core.settings.base import (
    Count,
    Examples,
    Line,
    Momentum,
    Nonnegative,
    Positive,
    Several,
    Steps,
    Strict,
    WithLater,
)
from fedfisher_core.settings.choices import PLAIN, ObjectiveChoice, Objectives
from fedfisher_core.settings.shifts import NO_SHIFT, Shift


class TextSettings(Strict):
    """How texts become tokens, for data sets of texts."""

    tokenizer: Line = Field("minilm", description="minilm, or the path of a `tokenizer.json`")
    length: int = Field(64, ge=1, le=8192, description="tokens of a text, those that begin and end it included")
    longer: Literal["cut", "refused"] = Field(
        "cut", description="what becomes of longer texts: cut at their end, and pages say how many were; or refused"
    )


class DataSettings(WithLater):
    """Which images the clients hold."""

    later = frozenset({"text"})

    dataset: Several[str] = Field(
        ("mnist5k",),
        min_length=1,
        description="names that `fedfisher datasets` lists, or paths of files that `fedfisher data import` wrote, one "
        "setting each",
    )
    examples: Count | None = Field(
        None,
        description="training images that are used: drawn at random, each class in proportion, the same ones for every "
        "seed and split; all test images are used; default: all",
    )
    augment: Literal["as_usual", "never"] = Field(
        "as_usual",
        description="as_usual: clients train on random crops and flips where the data set has them, as `fedfisher "
        "datasets` says",
    )
    image_sizes: Literal["same", "any"] = Field(
        "same",
        description="any: a data set may have images of different sizes, and each is resized to the data set's; same: "
        "different sizes are refused, and the message lists them",
    )
    held_out: Count | None = Field(
        None,
        description="training images, drawn at random, that no client and no server has and that replace the test "
        "images, so that settings can be chosen without the test images; default: none",
    )
    validation_size: Examples = Field(
        500, description="training images that the server holds; methods that select on them say so"
    )
    public_validation: bool = Field(
        False,
        description="whether the server's images, which clients train on as well, are public: with privacy, methods "
        "may use them only if they are, because differential privacy does not protect them",
    )
    text: TextSettings = TextSettings()


PartitionScheme = Literal[
    "dirichlet_client",
    "dirichlet_class",
    "paper",
    "classes",
    "iid",
    "quantity",
    "column",
    "domain",
    "largest",
    "pachinko",
    "target",
]
DIRICHLET_SCHEMES: tuple[PartitionScheme, ...] = (
    "dirichlet_client",
    "dirichlet_class",
    "paper",
    "quantity",
    "pachinko",
    "target",
)
"""The schemes that use `alpha`."""

NATURAL_SCHEMES: tuple[PartitionScheme, ...] = ("column", "domain", "largest")
"""The schemes that split by a column of the data, so that test images can belong to clients too."""

Concentration = Annotated[float, Field(ge=1e-3, le=1e6)]
"""Of a Dirichlet distribution; below the lower bound most shares are 0 in floating point, and some draws are NaN."""

Clients = Annotated[int, Field(ge=1, le=10_000)]


class PartitionSettings(Strict):
    """How the training images are split over clients."""

    scheme: Several[PartitionScheme] = Field(
        ("dirichlet_client",),
        min_length=1,
        description="one setting each. dirichlet_client: class proportions drawn for each client (FedFisher); "
        "dirichlet_class: client proportions drawn for each class; paper: FedFisher's fixed split; classes: k classes "
        "a client; iid; quantity: sizes drawn, class proportions alike (Li et al. 2022); column: each client gets all "
        "images of some values of a column, one value each where there are as many clients as values; domain: each "
        "value of a column has equally many clients, which share its images at random; largest: each client gets the "
        "images of one value of a column, for the values with most training images, and images of other values are not "
        "used; pachinko: coarse labels drawn for each client by alpha, and the labels below each of them by beta (Li "
        "and McCallum 2006; Reddi et al. 2021: alpha 0.1, beta 10); target: all images of one label to client 0, the "
        "others by dirichlet_client (FedFisher's privacy attack)",
    )
    alpha: Several[Concentration] = Field(
        (0.1, 0.5),
        min_length=1,
        description="Dirichlet concentrations, one setting each; smaller is more skewed",
    )
    clients: Several[Clients] = Field((5,), min_length=1, description="numbers of clients, one setting each")
    shift: Several[Shift] = Field(
        (NO_SHIFT,),
        min_length=1,
        description="one setting each, with any scheme: none, or {kind, strength}. Client i of M sees its training "
        "images under the i-th of M levels: rotation by angles spread evenly over -strength to strength degrees; from "
        "0 to strength, blur by a sigma in pixels, contrast reduced by a fraction, noise by a sigma where white is 1. "
        "labels: for a fraction `strength` of the clients, classes exchange their names. Test images are not changed",
    )
    min_size: int = Field(10, ge=1, le=10**9, description="fewest images that a client may hold")
    max_retries: int = Field(100, ge=1, le=10_000, description="draws before a split with `min_size` is given up")
    classes_per_client: Count = Field(2, description="classes that a client holds (scheme: classes)")
    column: Line | None = Field(
        None, description="column that names the client or the domain of an image (schemes: column, domain, largest)"
    )
    beta: Concentration | None = Field(
        None, description="Dirichlet concentration of the labels below one coarse label (scheme: pachinko)"
    )
    target_label: Examples | None = Field(
        None, description="label whose images client 0 holds, all of them (scheme: target)"
    )
    target_extra: Examples = Field(
        1000, description="random images of other labels that client 0 holds as well (scheme: target)"
    )

    @model_validator(mode="after")
    def _schemes_have_what_they_need(self) -> "PartitionSettings":
        for schemes, key, value in (
            (NATURAL_SCHEMES, "column", self.column),
            (("pachinko",), "beta", self.beta),
            (("target",), "target_label", self.target_label),
        ):
            if any(scheme in self.scheme for scheme in schemes) != (value is not None):
                raise ValueError(
                    f"partition.{key} must be set with partition.scheme={' or '.join(schemes)}, and only then"
                )
        for scheme, key in (("classes", "classes_per_client"), ("target", "target_extra")):
            value, default = getattr(self, key), type(self).model_fields[key].default
            if value != default and scheme not in self.scheme:
                raise ValueError(
                    f"partition.{key}={value} with partition.scheme={list(self.scheme)}; allowed: with {scheme} alone"
                )
        return self

    def described(self) -> dict[str, Any]:
        """Return what decides a split, apart from scheme, alpha, clients and shift, as JSON has it."""
        unused = set() if "target" in self.scheme else {"target_label", "target_extra"}
        unused |= set() if "pachinko" in self.scheme else {"beta"}
        return self.model_dump(mode="json", exclude={"scheme", "alpha", "clients", "shift"} | unused)


class TrainSettings(WithLater):
    """Local training: SGD with momentum."""

    later = frozenset({"together", "objective"})

    epochs: Count | None = Field(None, description="passes over a client's data; default: 30, or `steps`")
    steps: Steps | None = Field(None, description="gradient steps, instead of epochs")
    learning_rate: Positive = 0.01
    momentum: Momentum = 0.9
    weight_decay: Nonnegative = 0.0
    batch_size: Count = 64
    together: Annotated[int, Field(ge=2, le=1000)] | Literal["auto"] | None = Field(
        "auto",
        description="clients that train in one call a step, with their weights stacked; results are those of training "
        "one at a time, up to rounding. null: one at a time; auto: five, or ten on a GPU, if a round has 100 clients "
        "or more, batches have 16 examples or fewer and the network has half a million weights or fewer and can be "
        "stacked, and otherwise one at a time",
    )
    objective: Objectives = Field(
        {PLAIN: ObjectiveChoice()},
        min_length=1,
        description="what clients minimise, one setting each: names that `fedfisher objectives` lists, or mappings "
        "such as {name: fedprox, mu: 0.1, train: {learning_rate: 0.05}}, where train is what differs for that setting; "
        "or a mapping of labels to these, as for methods. With every objective, the Fisher is that of the model's "
        "likelihood, softmax of its outputs, at the trained weights",
    )

    @property
    def is_plain(self) -> bool:
        """Whether clients minimise the cross-entropy alone."""
        return self.objective == {PLAIN: ObjectiveChoice()}

    def of(self, objective: str) -> "TrainSettings":
        """Return the settings for the clients that minimise one of the objectives, by its label."""
        changes = self.objective[objective].train
        return self if changes is None else self.model_copy(update=changes.chosen)

    @model_validator(mode="before")
    @classmethod
    def _one_length(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        epochs, steps = given.get("epochs"), given.get("steps")
        if epochs is not None and steps is not None:
            raise ValueError(f"train.epochs={epochs} with train.steps={steps}; allowed: one of them, the other null")
        return {**given, "epochs": 30} if epochs is None and steps is None else given


class PrivacyMechanism(Strict):
    """How DP-SGD, and noise on what clients send besides weights, keep clients private, for any epsilon."""

    delta: float = Field(1e-5, ge=1e-15, lt=1, description="of (epsilon, delta); well below 1 / examples of a client")
    gradient_clip: Positive = Field(1.0, description="largest L2 norm of an example's gradient in training")
    statistics_share: float = Field(
        0.3, ge=1e-6, le=0.999, description="fraction of epsilon that the release of one statistic alone would cost"
    )
    diagonal_clip: Positive = Field(
        0.1, description="largest L2 norm of an example's squared derivatives, which the diagonal Fisher averages"
    )
    input_clip: Positive = Field(
        0.5, description="of K-FAC's inputs: largest mean square of an example's inputs of a layer"
    )
    output_clip: Positive = Field(
        0.01, description="of K-FAC's outputs: largest squared norm of an example's gradients at a layer's outputs"
    )
    input_moments_clip: Positive = Field(
        1.0,
        description="of input moments: largest mean square of an example's inputs; normalised data has 1 on average",
    )


class AuditSettings(Strict):
    """A lower bound on epsilon from guesses about canaries (Steinke et al. 2023)."""

    canaries: Count = Field(
        1000, description="examples of the first client that get a wrong label and are each left out with chance 1/2"
    )
    guesses: Count = Field(100, description="canaries for which the auditor guesses whether they were included")

    @model_validator(mode="after")
    def _guesses_are_of_canaries(self) -> "AuditSettings":
        if self.guesses > self.canaries:
            raise ValueError(f"audit.guesses={self.guesses}; allowed: at most audit.canaries={self.canaries}")
        return self


Epsilon = Annotated[float, Field(gt=0, le=10_000)]
"""Of differential privacy, which protects no one long before the upper bound."""


class PrivacySettings(PrivacyMechanism):
    """Differential privacy of every client."""

    epsilon: Epsilon = Field(description="budget of all that one client releases: its weights and its statistics")
