"""A client's part of secure aggregation, which trusts the server only as far as `Terms` says."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from fedfisher_core.communication.secure import shamir
from fedfisher_core.communication.secure.fixed_point import Tensors, Vector, mask
from fedfisher_core.communication.secure.keys import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    agree,
    derive,
    public_key,
    require_signed,
    seal,
    sign,
    stream,
    unseal,
)
from fedfisher_core.communication.secure.terms import KEYS_BYTES, Terms, keys_message, survivors_message
from fedfisher_core.engine.errors import ProtocolError
from fedfisher_core.settings import Round


def own_mask(seed: bytes, terms: Terms) -> Vector:
    """The mask that a client adds on its own, from its secret of 32 bytes; shape (size of the code,)."""
    return mask(seed, terms.code.size, bits=terms.code.bits, session=terms.context)


def add_pair(vector: Vector, client: int, other: int, private: bytes, keys: bytes, terms: Terms) -> None:
    """Add the mask that a client has in common with another, in place: the one adds what the other subtracts.

    Args:
        vector: shape (size of the code,).
        private: the client's private key of its pairs.
        keys: the first message of the other client, its public keys.
    """
    seed = agree(private, keys[KEY_BYTES:KEYS_BYTES], purpose=b"pair" + terms.context)
    if client < other:
        vector += own_mask(seed, terms)
    else:
        vector -= own_mask(seed, terms)


class Client:
    """One client's part.

    Each message is sent once, in the order of `Terms.messages`. The client checks what the server says before it
    answers. It raises a ProtocolError where a message was asked for already, or where what the server says breaks the
    protocol, such as a list of fewer clients than the threshold. After any error it answers nothing more. Its secrets
    are derived from its root and the terms, so that no two sessions share one.

    Args:
        read: returns what it adds, in double precision.
        root: 32 bytes that it alone knows. The benchmark's are seeded, so that runs can be repeated. A client with
            something to hide must draw them from the operating system, for each session anew.
        signing: its private key for signatures, 32 bytes, the same in all sessions; used where the server may be
            active.
    """

    def __init__(self, number: int, read: Callable[[], Tensors], *, terms: Terms, root: bytes, signing: bytes) -> None:
        self.number = number
        self._read = read
        self._terms = terms
        self._due: Round | None = terms.messages[0]
        self._signing = signing
        self._draw = stream(derive(root, purpose=b"secrets" + terms.context))
        self._sharing_key, self._pair_key, self._own_seed = (self._draw(KEY_BYTES) for _ in range(3))
        self._directory: dict[int, bytes] = {}
        # Shares of each client's secrets: its pairs' key, and its own mask's seed.
        self._held: dict[int, tuple[bytes, bytes]] = {}
        self._confirmed: tuple[int, ...] = ()

    def advertise(self) -> bytes:
        """The first message: two public keys, signed where the server may be active."""
        with self._answering("keys"):
            return self._advert()

    def share(self, directory: Mapping[int, bytes]) -> dict[int, bytes]:
        """The second message: shares of its two secrets, sealed for each other client, by receiver.

        Args:
            directory: the first message of each client, itself among them.
        """
        with self._answering("shares"):
            self._require_directory(directory)
            self._directory = {number: directory[number][:KEYS_BYTES] for number in sorted(directory)}
            pair, own = (
                shamir.split(secret, threshold=self._terms.threshold, holders=list(self._directory), draw=self._draw)
                for secret in (self._pair_key, self._own_seed)
            )
            self._held[self.number] = (pair[self.number], own[self.number])
            return {
                other: seal(self._channel(other, sender=self.number), pair[other] + own[other])
                for other in self._directory
                if other != self.number
            }

    def upload(self, sealed: Mapping[int, bytes]) -> bytes:
        """The third message: its vector under all of its masks.

        Args:
            sealed: shares from each other client that sent some; pairs are formed with these.
        """
        with self._answering("upload"):
            self._require_enough({*sealed, self.number}, among=self._directory, what="clients that sent shares")
            if self.number in sealed:
                raise self._error("has no shares to get from itself")
            for other, message in sealed.items():
                shares = unseal(self._channel(other, sender=other), message)
                if len(shares) != 2 * shamir.SHARE_BYTES:
                    raise self._error(
                        f"gets {len(shares)} bytes as shares of client {other}; allowed: {2 * shamir.SHARE_BYTES}"
                    )
                self._held[other] = (shares[: shamir.SHARE_BYTES], shares[shamir.SHARE_BYTES :])
            vector = self._terms.code.encode(self._read())
            vector += own_mask(self._own_seed, self._terms)
            for other in sealed:
                add_pair(vector, self.number, other, self._pair_key, self._directory[other], self._terms)
            return vector.tobytes()

    def confirm(self, uploaded: Collection[int]) -> bytes:
        """The message before the last, for an active server: a signature of the list of uploads that arrived."""
        with self._answering("consistency"):
            self._confirmed = self._survivors(uploaded)
            return sign(self._signing, survivors_message(self._terms, self._confirmed))

    def reveal(self, uploaded: Collection[int], signatures: Mapping[int, bytes]) -> bytes:
        """The last message: of each client that formed pairs, a share of one of its two secrets, in the clients' order.

        Args:
            uploaded: the clients whose uploads arrived. Of them it reveals the own mask's seed, of the others the
                pairs' key.
            signatures: of this list, by client; of at least `threshold` of them where the server may be active.
        """
        with self._answering("unmasking"):
            survivors = self._survivors(uploaded)
            if self._terms.verification_keys is not None:
                self._require_agreement(survivors, signatures, self._terms.verification_keys)
            # A second request, of any kind, finds nothing left.
            held, self._held = self._held, {}
            return b"".join(own if client in survivors else pair for client, (pair, own) in sorted(held.items()))

    @contextmanager
    def _answering(self, message: Round) -> Iterator[None]:
        """Send a message if it is due; after any error no further message is due."""
        due, self._due = self._due, None
        if message != due:
            raise self._error(f"is asked for {message!r}; allowed: {'nothing more' if due is None else repr(due)}")
        yield
        following = self._terms.messages[self._terms.messages.index(message) + 1 :]
        self._due = following[0] if following else None

    def _advert(self) -> bytes:
        keys = public_key(self._sharing_key) + public_key(self._pair_key)
        if not self._terms.signed:
            return keys
        return keys + sign(self._signing, keys_message(self._terms, self.number, keys))

    def _require_directory(self, directory: Mapping[int, bytes]) -> None:
        """Make sure that each client has keys of its own, and that they are its own."""
        self._require_enough(directory, among=self._terms.participants, what="clients that sent keys")
        if directory.get(self.number) != self._advert():
            raise self._error("finds other keys than its own under its number")
        verification = self._terms.verification_keys
        length = KEYS_BYTES + (0 if verification is None else SIGNATURE_BYTES)
        for number, advert in directory.items():
            if len(advert) != length:
                raise self._error(f"gets {len(advert)} bytes as keys of client {number}; allowed: {length}")
            if verification is not None:
                keys, signature = advert[:KEYS_BYTES], advert[KEYS_BYTES:]
                message = keys_message(self._terms, number, keys)
                require_signed(verification[number], signature, message, what=f"keys of client {number}")
        keys_of_all = [advert[at : at + KEY_BYTES] for advert in directory.values() for at in (0, KEY_BYTES)]
        if len(set(keys_of_all)) < len(keys_of_all):
            raise self._error("finds a public key that is used twice")

    def _survivors(self, uploaded: Collection[int]) -> tuple[int, ...]:
        """The clients whose uploads are said to have arrived, in order of their numbers, if that is possible."""
        self._require_enough(uploaded, among=self._held, what="clients whose uploads arrived")
        if self.number not in uploaded:
            raise self._error("is told that its upload did not arrive")
        return tuple(sorted(uploaded))

    def _require_agreement(
        self, survivors: tuple[int, ...], signatures: Mapping[int, bytes], verification: Mapping[int, bytes]
    ) -> None:
        """Make sure that enough clients were told of the same survivors (Bonawitz et al. 2017, figure 4, round 4)."""
        if survivors != self._confirmed:
            raise self._error(f"is told of survivors {list(survivors)}, after {list(self._confirmed)}")
        self._require_enough(signatures, among=survivors, what="clients that signed the survivors")
        for number, signature in signatures.items():
            message = survivors_message(self._terms, survivors)
            require_signed(verification[number], signature, message, what=f"survivors as client {number} knows them")

    def _require_enough(self, given: Collection[int], *, among: Collection[int], what: str) -> None:
        """Make sure that a list holds `threshold` clients, each once and each from the allowed ones."""
        least = self._terms.threshold
        if len(set(given)) != len(given) or not set(given) <= set(among) or len(given) < least:
            raise self._error(f"gets {sorted(given)} as {what}; allowed: {least} or more of {sorted(among)}, each once")

    def _error(self, what: str) -> ProtocolError:
        return ProtocolError(f"client {self.number} {what}")

    def _channel(self, other: int, *, sender: int) -> bytes:
        """The key of the one message from one client of a pair to the other."""
        purpose = b"shares" + self._terms.context + sender.to_bytes(4, "little")
        return agree(self._sharing_key, self._directory[other][:KEY_BYTES], purpose=purpose)
