"""The settings of federations that go on for several rounds."""

from typing import Annotated

from pydantic import Field

from fedfisher_core.settings.base import Strict
from fedfisher_core.settings.choices import AVERAGE, Choice, ServerOptimisers
from fedfisher_core.settings.clients import Clients


class RoundSettings(Strict):
    """How often clients train, and how the server goes on."""

    count: Annotated[int, Field(ge=1, le=10_000)] = Field(
        1,
        description="rounds: in each, clients train from the server's network, and a method aggregates what they send. "
        "1 is one-shot. In round 1 all methods share the clients; from round 2 on each method has its own",
    )
    cohort: Clients | None = Field(
        None, description="clients that take part in a round, drawn anew for each round; default: all"
    )
    keep: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="last rounds whose clients' tensors stay in the store: those of earlier rounds (weights, "
        "statistics, payloads) are removed while the run goes on, and made again where a later run misses them; "
        "default: all stay. From count on it removes nothing. It changes no result",
    )
    server_optimiser: ServerOptimisers = Field(
        {AVERAGE: Choice()},
        min_length=1,
        description="what the server makes of an aggregate before the next round, one setting each: names that "
        "`fedfisher optimisers` lists, or mappings such as {name: fedadam, learning_rate: 0.01}; or a mapping "
        "of labels to these, as methods have. average: the aggregate itself",
    )
