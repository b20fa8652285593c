"""The messages that crossed the network in one secure sum, and their bytes."""

from collections.abc import Mapping
from dataclasses import dataclass

from fedfisher_core.communication.secure import shamir
from fedfisher_core.communication.secure.keys import KEY_BYTES, SIGNATURE_BYTES
from fedfisher_core.communication.secure.terms import Terms


@dataclass(frozen=True)
class Messages:
    """What clients sent, by their numbers; uploads are summed up as they come, and not kept.

    Args:
        adverts: public keys, with their signature where the server may be active.
        sealed: shares of two secrets, by sender and receiver.
        uploaded: the clients whose masked vectors arrived.
        upload_bytes: of one masked vector.
        signatures: of the list of those clients, where the server may be active.
        answers: a share for each client in `sealed`, in their order.
    """

    adverts: Mapping[int, bytes]
    sealed: Mapping[int, Mapping[int, bytes]]
    uploaded: tuple[int, ...]
    upload_bytes: int
    signatures: Mapping[int, bytes]
    answers: Mapping[int, bytes]

    def revealed(self, client: int) -> dict[int, bytes]:
        """The shares of one of a client's two secrets, by holder."""
        begin = list(self.sealed).index(client) * shamir.SHARE_BYTES
        return {holder: answer[begin : begin + shamir.SHARE_BYTES] for holder, answer in self.answers.items()}

    def bytes_sent(self) -> int:
        """Bytes that all clients sent."""
        shares = sum(len(one) for messages in self.sealed.values() for one in messages.values())
        vectors = len(self.uploaded) * self.upload_bytes
        return _total(self.adverts) + shares + vectors + _total(self.signatures) + _total(self.answers)

    def bytes_received(self, invited: int) -> int:
        """Bytes that the server sent to all clients: what each forwards, and a bit for each that might have sent it."""
        directory = len(self.adverts) * (_total(self.adverts) + _list_bytes(invited))
        forwarded = sum(
            len(message) for messages in self.sealed.values() for to, message in messages.items() if to in self.sealed
        )
        shares = forwarded + len(self.sealed) * _list_bytes(len(self.adverts))
        survivors = len(self.uploaded) * _list_bytes(len(self.sealed))
        confirmed = len(self.signatures) * (_total(self.signatures) + _list_bytes(len(self.uploaded)))
        return directory + shares + survivors + confirmed

    def formula_bits(self, terms: Terms) -> int:
        """Bits that all clients sent, as papers count them (Bonawitz et al. 2017, section 7.1): sealed without tags."""
        key, share = 8 * KEY_BYTES, 8 * shamir.SHARE_BYTES
        signature = 8 * SIGNATURE_BYTES if terms.signed else 0
        keys = len(self.adverts) * (2 * key + signature)
        shares = len(self.sealed) * (len(self.adverts) - 1) * 2 * share
        vectors = len(self.uploaded) * terms.code.size * terms.code.bits
        confirmed = len(self.signatures) * signature
        return keys + shares + vectors + confirmed + len(self.answers) * len(self.sealed) * share


def _total(messages: Mapping[int, bytes]) -> int:
    return sum(map(len, messages.values()))


def _list_bytes(known: int) -> int:
    """Bytes of a list of some of so many clients, one bit each."""
    return -(-known // 8)
