"""Settings of the Fisher information that clients compute."""

from typing import Any, Literal

from pydantic import Field, model_validator

from fedfisher_core.engine.errors import InputError
from fedfisher_core.settings.base import Count, WithLater

FEW_CLASSES = 10
"""Most classes for which Fishers are exact by default."""

MEMORY_MIB = 256
"""Working memory of a pass on a processor, which is more than its cache holds."""

GPU_MEMORY_MIB = 4096
"""Working memory of a pass on a GPU, where a pass of the CNN took 25 times as long with 256 (`benchmarks.gpu`)."""

DEFAULT_TOLERANCE = 0.01
"""Chosen by `benchmarks.many_classes` among 0.001, 0.01, 0.1 and sampled Fishers.

With it, the accuracy of FedFisher(K-FAC) was within 0.2 percentage points of exact Fishers for each of three seeds, on
100 classes of pairs of digits. With one sample an image it lost 1.1 to 1.3 points of 35 (reports/many_classes.txt).
"""

DEFAULT_DIRECTIONS = 16
"""Most backward passes for each example; a network that is unsure of its examples needs one for nearly every class.

Chosen by `benchmarks.many_classes` as the largest of 8, 16 and 24 that takes less than a quarter of the training's
seconds for an untrained network of 100 classes. With each of the three, the accuracy of FedFisher(K-FAC) was within 0.9
percentage points of exact Fishers for each of five seeds (reports/many_classes.txt).
"""


class FisherSettings(WithLater):
    """How clients compute their Fisher information."""

    later = frozenset({"tolerance", "directions", "weight_sharing"})

    backend: Literal["native", "nngeometry"] = Field(
        "native", description="nngeometry: the library that the paper used; exact only, a pass for each Fisher"
    )
    estimator: Literal["auto", "exact", "truncated", "monte_carlo", "empirical"] = Field(
        "auto",
        description="expectation over the model's outputs: exact, a backward pass a class; truncated, exact except for "
        "output directions with almost no trace; monte_carlo, sampled; empirical, at the true labels. auto: exact up "
        f"to {FEW_CLASSES} classes and with privacy or nngeometry, else truncated",
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
        description="most backward passes for each image (estimator: truncated): where it needs more, some directions "
        "are drawn at random; null: no limit",
    )
    samples: Count = Field(1, description="outputs drawn for each image (estimator: monte_carlo)")
    weight_sharing: Literal["expand", "reduce"] = Field(
        "expand",
        description="K-FAC of layers that are applied at several positions, such as those of a sequence or an image: "
        "expand, each position counts as an example; reduce, inputs are averaged over an example's positions first, "
        "and gradients added",
    )
    passes: Literal["shared", "separate"] = Field(
        "shared",
        description="shared: one pass for all Fishers of a client, and each reports its seconds; separate: one pass "
        "for each Fisher, which reports the seconds of its own pass",
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
        if self.backend == "nngeometry" and self.weight_sharing != "expand":
            raise ValueError(
                f"fisher.weight_sharing={self.weight_sharing!r} with fisher.backend='nngeometry'; allowed: 'expand'"
            )
        if self.backend == "nngeometry" and self.estimator not in ("auto", "exact"):
            raise ValueError(f"fisher.estimator={self.estimator!r} with fisher.backend='nngeometry'; allowed: 'exact'")
        return self

    @model_validator(mode="after")
    def _estimators_have_their_own_settings(self) -> "FisherSettings":
        for estimators, key in (
            (("auto", "truncated"), "tolerance"),
            (("auto", "truncated"), "directions"),
            (("monte_carlo",), "samples"),
        ):
            value, default = getattr(self, key), type(self).model_fields[key].default
            if value != default and self.estimator not in estimators:
                raise ValueError(
                    f"fisher.{key}={value} with fisher.estimator={self.estimator!r}; allowed: {default}, or the "
                    f"estimator {' or '.join(estimators)}"
                )
        return self

    def chosen(self, classes: int, *, private: bool, on_gpu: bool) -> "FisherSettings":
        """Choose the estimator by the number of classes, and the memory by the device, where settings leave them open.

        Args:
            private: whether Fishers are released with differential privacy, which needs the exact estimator.
        """
        exact = private or self.backend == "nngeometry" or classes <= FEW_CLASSES
        by_classes = "exact" if exact else "truncated"
        estimator = by_classes if self.estimator == "auto" else self.estimator
        # What the estimator does not use must not make two Fishers differ.
        unused = {"tolerance": DEFAULT_TOLERANCE, "directions": DEFAULT_DIRECTIONS} if estimator != "truncated" else {}
        return self.model_copy(
            update={
                **unused,
                "estimator": estimator,
                "memory_mib": self.memory_mib or (GPU_MEMORY_MIB if on_gpu else MEMORY_MIB),
            }
        )

    @property
    def memory_limit(self) -> int:
        """Most bytes of working memory of a pass; `InputError` where the memory is not chosen yet."""
        if self.memory_mib is None:
            raise InputError(
                f"fisher.memory_mib=None with estimator={self.estimator!r}: a pass needs to know its memory; "
                "allowed: a number, or what FisherSettings.chosen returns for a data set and a device"
            )
        return self.memory_mib * 2**20

    @property
    def estimate(self) -> str:
        """The estimator with its own setting, and the form of K-FAC if it is not the default, as reports show them."""
        most = "" if self.directions is None else f", {self.directions} at most"
        own = {"truncated": f" ({self.tolerance:g}{most})", "monte_carlo": f" ({self.samples})"}
        reduced = ", reduce" if self.weight_sharing == "reduce" else ""
        return self.estimator + own.get(self.estimator, "") + reduced

    def described(self) -> dict[str, Any]:
        """Return what decides a Fisher, as JSON has it; estimator and memory must be chosen."""
        unused = set() if self.estimator == "truncated" else {"tolerance", "directions"}
        if self.weight_sharing == "expand":
            unused.add("weight_sharing")
        return {name: value for name, value in dict(self).items() if name not in unused}
