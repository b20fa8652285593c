"""Networks whose layers follow one another, for methods that match the hidden units of each layer by themselves."""

from functools import lru_cache

from fedfisher_core.errors import UnsupportedLayerError
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.models.streams import StreamLayer, streams


@lru_cache
def chain(spec: ModelSpec) -> tuple[StreamLayer, ...]:
    """List the layers of a network in their order.

    Args:
        spec: the network.

    Returns:
        Its layers, from the inputs to the outputs.

    Raises:
        UnsupportedLayerError: the layers do not simply follow one another, as where there is a skip connection.
    """
    layers = streams(spec)
    for index, layer in enumerate(layers):
        before = None if index == 0 else index - 1
        after = None if index == len(layers) - 1 else index
        if (layer.reads, layer.writes) != (before, after):
            raise UnsupportedLayerError(
                f"model {spec.name!r}: the hidden units around layer {layer.name!r} are tied to other layers', as by a "
                f"skip connection; allowed: layers that follow one another"
            )
    return layers
