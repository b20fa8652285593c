"""Settings of the network between clients and server."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from fedfisher_core.settings.base import Examples, Strict

Round = Literal["keys", "shares", "upload", "consistency", "unmasking"]
"""A client's messages in the protocol of secure aggregation, in their order."""


class SecureSettings(Strict):
    """How clients add up their uploads so that the server learns only the sum (wire.server_view: secure_sum)."""

    adversary: Literal["honest_but_curious", "active"] = Field(
        "honest_but_curious",
        description="the server that clients are protected from: honest_but_curious follows the protocol; active may "
        "also send wrong messages, so clients sign their keys and the list of survivors",
    )
    bits: Literal[32, 64] = Field(
        64, description="bits of a masked number; Fishers, which vary widely, need 64 or a narrow clip"
    )
    clip: float = Field(
        256.0,
        ge=2.0**-40,
        le=2.0**40,
        description="size up to which a client's number (a weight, a Fisher's entry, their product) is never clipped: "
        "multiplied by its examples, it is clipped at clip times most_examples, both rounded up to powers of two (a "
        "number that counts once for each client, at clip itself), and a run warns of the fraction of clipped numbers",
    )
    most_examples: int = Field(
        2**17,
        ge=1,
        le=2**40,
        description="a client with more examples counts as one with this many, rounded up to a power of two",
    )
    threshold: int | None = Field(
        None,
        ge=2,
        description="clients that must stay until the last message, else the server learns nothing; default: more than "
        "half, or more than two thirds with adversary: active",
    )
    dropouts: dict[Examples, Round] = Field(
        {},
        description="simulated: clients by number, with the first message that each fails to send: keys, shares, "
        "upload (none of them counts in the sum), consistency (with adversary: active) or unmasking (these count)",
    )

    @model_validator(mode="after")
    def _dropped_messages_are_sent(self) -> "SecureSettings":
        unsent = sorted(client for client, message in self.dropouts.items() if message == "consistency")
        if unsent and self.adversary != "active":
            raise ValueError(
                f"wire.secure.dropouts: clients {unsent} drop out at 'consistency', a message that "
                f"wire.secure.adversary={self.adversary!r} does not have; allowed: keys, shares, upload, unmasking"
            )
        return self


_MOST_BITS = 10**15


def _budget(value: object) -> object:
    if value in ("fedavg", "none") or (type(value) is int and 1 <= value <= _MOST_BITS):
        return value
    raise ValueError(f"allowed: fedavg, none, or a whole number from 1 to {_MOST_BITS:,}")


Budget = Annotated[Literal["fedavg", "none"] | int, BeforeValidator(_budget)]


class WireFields(Strict):
    """The most that an upload may cost, and its encoding; under a method, those that differ from the experiment's."""

    budget: Budget = Field(
        "fedavg", description="most bits of one client's upload: fedavg (what FedAvg sends), none, or a number"
    )
    format: Literal["fedfisher", "paper", "float32"] = Field(
        "fedfisher",
        description="how statistics are compressed to fit the budget: fedfisher (this project's), paper (FedFisher's), "
        "float32 (not at all)",
    )
    factor_bits: int = Field(
        9,
        ge=2,
        le=24,
        description="bits of a number in the singular vectors of a matrix, with its sign (format: paper): 17, 9 and 5 "
        "are the paper's s_q = 2, 4 and 8, for which it counts 16, 8 and 4",
    )
    server_view: Literal["declared", "secure_sum"] = Field(
        "declared",
        description="declared: the server receives each client's upload; secure_sum: by secure aggregation it learns "
        "only the sum (for methods that need only sums, with budget: none)",
    )
    secure: SecureSettings = SecureSettings()


class WireSettings(WireFields):
    """All settings of an upload."""

    @model_validator(mode="after")
    def _sums_are_not_shortened(self) -> "WireSettings":
        if self.server_view == "secure_sum" and self.budget != "none":
            raise ValueError(
                f"wire.budget={self.budget!r} with wire.server_view='secure_sum'; allowed: 'none', since what is "
                "masked can't be shortened"
            )
        return self

    def described(self) -> dict[str, Any]:
        """Return the settings as JSON has them, without those of secure aggregation where it is not used."""
        unused = set() if self.server_view == "secure_sum" else {"server_view", "secure"}
        return self.model_dump(mode="json", exclude=unused)
