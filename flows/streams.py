"""Objects on their way to another process, of which each travels once."""

import pickle
from io import BytesIO
from typing import Any

import cloudpickle


class Sender:
    """Pickles one message after another; what was in an earlier one is referred to.

    Batches of one federation share its settings. The classes of these are made while a program runs, so that they
    travel as well, and take longer than all else. What was computed once for a federation is also found again by those
    batches alone that have the same one, not an equal one.
    """

    def __init__(self) -> None:
        self._file = BytesIO()
        self._pickler = cloudpickle.Pickler(self._file)

    def packed(self, message: object) -> bytes:
        """Pickle a message. After one that can't be, there is no other.

        Args:
            message: what is in it must not change later.

        Returns:
            What `Receiver.unpacked` reads.
        """
        self._file.seek(0)
        self._file.truncate()
        self._pickler.dump(message)
        return self._file.getvalue()


class Receiver:
    """Reads all messages of one sender, in their order."""

    def __init__(self) -> None:
        self._file = BytesIO()
        self._unpickler = pickle.Unpickler(self)  # noqa: S301 - it reads what the process that started this one sends.

    def unpacked(self, data: bytes) -> Any:
        """Read a message.

        Args:
            data: from `Sender.packed`.

        Returns:
            The message.
        """
        self._file = BytesIO(data)
        return self._unpickler.load()

    def read(self, size: int = -1) -> bytes:
        """Read from the message at hand, for the unpickler."""
        return self._file.read(size)

    def readline(self) -> bytes:
        """Read from the message at hand, for the unpickler."""
        return self._file.readline()
