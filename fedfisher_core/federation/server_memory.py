"""Whether what a server must hold fits the machine, asked before any client is trained."""

from fedfisher_core.errors import InputError
from fedfisher_core.evaluation.memory import machine_bytes
from fedfisher_core.federation.federation import Federations, schema_of
from fedfisher_core.federation.place import Place
from fedfisher_core.methods.binding import BoundMethod

_GIB = 2**30


def held_bytes(bound: BoundMethod, place: Place, members: int) -> int:
    """Say what a server holds of the clients' uploads at once, beside which it needs room to work in.

    Args:
        bound: the method.
        place: the federation.
        members: how many clients take part in a round.

    Returns:
        Bytes of one decoded upload, where the method makes do with sums; of all of them otherwise.
    """
    return (1 if bound.method.streamed else members) * schema_of(bound, place).decoded_bytes


def require_server_memory(federations: Federations) -> None:
    """Check that the uploads which a method needs at once fit the memory of this machine.

    Args:
        federations: whose servers run on this machine's processor; other machines and GPUs are not known here.

    Raises:
        InputError: names the method, the federation, what it holds and what there is.
    """
    there = machine_bytes()
    if federations.settings.run.elsewhere or there is None:
        return
    for place in federations.places:
        if place.numerics.device != "cpu":
            continue
        for label, bound in federations.methods_of(place).items():
            members = len(federations.members(place, bound))
            held = held_bytes(bound, place, members)
            if held > there:
                raise InputError(
                    f"method {label!r} holds the uploads of all clients at once, which for {members:,} clients with "
                    f"{place.cell.model} are {held / _GIB:,.1f} GiB; this machine has {there / _GIB:,.1f} GiB; "
                    "allowed: fewer clients, or methods that hold one upload at a time, as `fedfisher methods` says"
                )
