"""What servers hold at once, against the memory of a machine, before any work starts."""

from fedfisher_core.engine.errors import InputError
from fedfisher_core.federation.federation import Federation
from fedfisher_core.federation.jobs import Federations
from fedfisher_core.federation.uploads import schema_of
from fedfisher_core.methods.configured import ConfiguredMethod
from fedfisher_core.models.memory import Load, machine_bytes

_GIB = 2**30


def held_bytes(configured: ConfiguredMethod, federation: Federation, members: int) -> int:
    """Bytes of decoded uploads that a server must hold at once: of one where the method needs sums only, or of all.

    The server needs room to work in as well. It keeps all uploads in either case while they are small (`KEPT_BYTES`).
    """
    return (1 if configured.method.streamed else members) * schema_of(configured, federation.spec).decoded_bytes


def largest_load(federations: Federations) -> Load | None:
    """Find the server that holds most at once, among those that compute on a CPU; None where there is none."""
    loads = [
        _load(label, configured, federation, len(federations.members(federation, configured)))
        for federation in federations.all
        if federation.numerics.device == "cpu"
        for label, configured in federations.methods_of(federation).items()
    ]
    return max(loads, key=lambda load: load.bytes, default=None)


def _load(label: str, configured: ConfiguredMethod, federation: Federation, members: int) -> Load:
    held = held_bytes(configured, federation, members)
    size, model = f"{held / _GIB:,.1f} GiB", federation.setting.model
    if configured.method.streamed:
        said, remedy = f"holds the upload of one client at a time, which with {model} is {size}", "smaller networks"
    else:
        said = f"holds the uploads of all clients at once, which for {members:,} clients with {model} are {size}"
        remedy = "fewer clients, or methods that hold one upload at a time, as `fedfisher methods` says"
    return Load(said=f"method {label!r} {said}", bytes=held, remedy=remedy)


def require_server_memory(federations: Federations) -> None:
    """Check that what servers hold at once fits the memory of this machine; other machines and GPUs are not checked.

    Raises:
        InputError: names the method, what it holds and what the machine has.
    """
    there, load = machine_bytes(), largest_load(federations)
    if federations.settings.run.elsewhere or there is None or load is None:
        return
    if load.bytes > there:
        raise InputError(f"{load.said}; this machine has {there / _GIB:,.1f} GiB; allowed: {load.remedy}")
