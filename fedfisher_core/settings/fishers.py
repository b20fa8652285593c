"""Settings of the Fisher information that clients compute."""

from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from fedfisher_core.settings.base import Count, Strict

FEW_CLASSES = 10
"""Most classes for which Fishers are exact by default."""

MEMORY_MIB = 256
"""Working memory of a pass on a processor, whose cache holds less."""

GPU_MEMORY_MIB = 4096
"""Working memory of a pass on a GPU, where a pass of the CNN took 25 times as long with 256 (`benchmarks.gpu`)."""

DEFAULT_TOLERANCE = 0.01
"""Of 0.001, 0.01, 0.1 and sampled Fishers, chosen by `benchmarks.many_classes`.

With it, FedFisher(K-FAC) had the accuracy of exact Fishers within 0.2 points for each of three seeds, on 100 classes of
pairs of digits, and one sample an image lost 1.1 to 1.3 points of 35 (reports/many_classes.txt).
"""

DEFAULT_DIRECTIONS = 16
"""Most backward passes for each example; a network that is unsure of its examples needs one for nearly every class.

Of 8, 16 and 24, the most that stays below a quarter of the seconds of training for a network of 100 classes that knows
nothing, chosen by `benchmarks.many_classes`. FedFisher(K-FAC)'s accuracy with any of them was that of exact Fishers
within 0.9 points for each of five seeds (reports/many_classes.txt).
"""


class FisherSettings(Strict):
    """How clients compute their Fisher information."""

    backend: Literal["native", "nngeometry"] = Field(
        "native", description="nngeometry: the library that the paper used; exact only, a pass for each Fisher"
    )
    estimator: Literal["auto", "exact", "truncated", "monte_carlo", "empirical"] = Field(
        "auto",
        description="expectation over the model's outputs: exact, a backward pass a class; truncated, exact but for "
        "output directions that carry next to nothing; sampled; or at the true labels. auto: exact up to "
        f"{FEW_CLASSES} classes and with privacy or nngeometry, else truncated",
    )
    tolerance: float = Field(
        DEFAULT_TOLERANCE,
        gt=0,
        lt=1,
        description="largest part of the Fisher's trace at the outputs that is left out (estimator: truncated); the "
        "default was chosen by the accuracy of FedFisher(K-FAC) on 100 classes and the seconds on 43 and 100",
    )
    directions: Count | None = Field(
        DEFAULT_DIRECTIONS,
        description="most backward passes for each image (estimator: truncated): where it needs more, some of them are "
        "of directions that are drawn; null: no limit",
    )
    samples: Count = Field(1, description="outputs drawn for each image (estimator: monte_carlo)")
    passes: Literal["shared", "separate"] = Field(
        "shared",
        description="shared: all Fishers of a client in one pass, whose seconds each of them reports; separate: a pass "
        "each, so that the seconds are each Fisher's own",
    )
    memory_mib: int | None = Field(
        None,
        ge=1,
        le=10**7,
        description=f"most working memory of a pass, in MiB; default: {MEMORY_MIB} on a processor, {GPU_MEMORY_MIB} on "
        "a GPU",
    )

    @model_validator(mode="after")
    def _nngeometry_is_exact(self) -> "FisherSettings":
        if self.backend == "nngeometry" and self.estimator not in ("auto", "exact"):
            raise ValueError(f"fisher.estimator={self.estimator!r} with fisher.backend='nngeometry'; allowed: 'exact'")
        return self

    @model_serializer(mode="wrap")
    def _without_defaults_of_truncation(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write settings as they were before there was truncation, so that names stay."""
        written = handler(self)
        if self.tolerance == DEFAULT_TOLERANCE:
            written.pop("tolerance", None)
        if self.directions == DEFAULT_DIRECTIONS:
            written.pop("directions", None)
        return written

    def chosen(self, classes: int, *, private: bool, on_gpu: bool) -> "FisherSettings":
        """Choose the estimator where that is left to the number of classes, and the memory where it is to the device.

        Args:
            classes: number of labels.
            private: whether Fishers are released with differential privacy, which has the exact estimator alone.
            on_gpu: whether a GPU computes them.

        Returns:
            The settings, whose estimator is not "auto" and whose memory is a number.
        """
        exact = private or self.backend == "nngeometry" or classes <= FEW_CLASSES
        by_classes = "exact" if exact else "truncated"
        return self.model_copy(
            update={
                "estimator": by_classes if self.estimator == "auto" else self.estimator,
                "memory_mib": self.memory_mib or (GPU_MEMORY_MIB if on_gpu else MEMORY_MIB),
            }
        )

    @property
    def memory_limit(self) -> int:
        """Most bytes of working memory of a pass; of settings whose memory is chosen."""
        assert self.memory_mib is not None
        return self.memory_mib * 2**20

    @property
    def estimate(self) -> str:
        """The estimator with its own setting, as reports have it."""
        most = "" if self.directions is None else f", {self.directions} at most"
        own = {"truncated": f" ({self.tolerance:g}{most})", "monte_carlo": f" ({self.samples})"}
        return self.estimator + own.get(self.estimator, "")

    def described(self) -> dict[str, Any]:
        """What decides a Fisher, as JSON has it; of settings whose estimator and memory are chosen."""
        unused = set() if self.estimator == "truncated" else {"tolerance", "directions"}
        described = {name: value for name, value in dict(self).items() if name not in unused}
        if self.estimator != "monte_carlo":
            # Their number decides nothing, and was always written.
            described["samples"] = type(self).model_fields["samples"].default
        return described
