"""The settings of what is measured on clients' own examples, beside the test examples."""

from typing import Annotated

from pydantic import Field

from fedfisher_core.settings.base import Count, Strict
from fedfisher_core.settings.clients import Clients


class PersonalisationSettings(Strict):
    """How clients that never took part make the global network their own."""

    unseen_clients: Clients = Field(
        description="clients that take part in no round, the last ones of every split; they send nothing, and the "
        "server's validation images are none of theirs"
    )
    epochs: Count = Field(
        1,
        description="passes over the examples that an unseen client trains the global network on, by plain "
        "cross-entropy; all else is as `train` says",
    )
    share: Annotated[float, Field(ge=0.01, le=0.99)] = Field(
        0.5, description="part of its examples that it trains on; it is measured on the others"
    )


class MeasureSettings(Strict):
    """What is measured on clients' own examples of every method that returns one network."""

    barrier: bool = Field(
        False,
        description="client-server barrier: a client's network less the server's, measured on the examples that the "
        "client trained on, for the clients of the last round",
    )
    personalisation: PersonalisationSettings | None = Field(
        None, description="accuracy of unseen clients before and after they train the global network for themselves"
    )
