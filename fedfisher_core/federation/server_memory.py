"""What servers must hold, and whether it fits the machine, asked before any client is trained."""

from fedfisher_core.errors import InputError
from fedfisher_core.evaluation.memory import Load, machine_bytes
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


def largest_load(federations: Federations) -> Load | None:
    """Find the server that holds most at once, beside which it needs room to work in.

    Args:
        federations: those whose servers compute on a GPU are left out.

    Returns:
        What it holds; None where there is none.
    """
    loads = [
        _load(label, bound, place, len(federations.members(place, bound)))
        for place in federations.places
        if place.numerics.device == "cpu"
        for label, bound in federations.methods_of(place).items()
    ]
    return max(loads, key=lambda load: load.bytes, default=None)


def _load(label: str, bound: BoundMethod, place: Place, members: int) -> Load:
    held = held_bytes(bound, place, members)
    size, model = f"{held / _GIB:,.1f} GiB", place.cell.model
    if bound.method.streamed:
        said, remedy = f"holds the upload of one client at a time, which with {model} is {size}", "smaller networks"
    else:
        said = f"holds the uploads of all clients at once, which for {members:,} clients with {model} are {size}"
        remedy = "fewer clients, or methods that hold one upload at a time, as `fedfisher methods` says"
    return Load(said=f"method {label!r} {said}", bytes=held, remedy=remedy)


def require_server_memory(federations: Federations) -> None:
    """Check that what servers hold at once fits the memory of this machine.

    Args:
        federations: whose servers run on this machine's processor; other machines and GPUs are not known here.

    Raises:
        InputError: names the method, what it holds and what there is.
    """
    there, load = machine_bytes(), largest_load(federations)
    if federations.settings.run.elsewhere or there is None or load is None:
        return
    if load.bytes > there:
        raise InputError(f"{load.said}; this machine has {there / _GIB:,.1f} GiB; allowed: {load.remedy}")
