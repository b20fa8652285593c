"""The errors that a user can cause, or must be told of by name."""


class InputError(ValueError):
    """A setting, a file or a combination that can't be used; the message names it and what is allowed."""


class UnsupportedLayerError(InputError):
    """A layer that an algorithm is not defined for; the message names the layer and the algorithm."""


class CorruptArtifactError(RuntimeError):
    """Stored or received bytes that are not what was written; they are never used."""


class ProtocolError(RuntimeError):
    """A message of secure aggregation that is not what the protocol asks for; who receives it stops."""


class DivergedClientError(ArithmeticError):
    """A client whose training or statistic is not finite; the message names the client and the quantity."""


class DivergedAttackError(ArithmeticError):
    """A part of an attack whose loss is not finite; the message names the part, the step and the loss."""


class OutputError(RuntimeError):
    """Results that are kept, but could not be written to a place where people look; the message names the place."""
