"""What settings of methods ask of a federation, checked before any client is trained and again with the uploads."""

from fedfisher_core.errors import InputError


def require_pivot(pivot: int, clients: int) -> None:
    """Refuse a pivot that is no client.

    Args:
        pivot: its number.
        clients: how many there are.

    Raises:
        InputError: there is no client with this number.
    """
    if pivot >= clients:
        raise InputError(f"pivot={pivot}: allowed: 0 to {clients - 1}, one of the clients")
