"""What travels to another process, and what of it travels once."""

from dataclasses import dataclass

import pytest

from flows.streams import Receiver, Sender


def test_messages_come_as_they_were_sent() -> None:
    sender, receiver = Sender(), Receiver()
    for message in ({"a": 1}, (), [b"x" * 100_000, "y"], {"a": 1}):
        assert receiver.unpacked(sender.packed(message)) == message


def test_what_several_messages_have_travels_once_and_stays_one() -> None:
    @dataclass(frozen=True)
    class Shared:
        """A class of no module, which must itself travel."""

        text: str

    sender, receiver = Sender(), Receiver()
    shared = Shared("a" * 1000)
    first, second = (sender.packed((number, shared)) for number in range(2))
    assert len(second) < 50 < len(first)
    (_, one), (number, other) = receiver.unpacked(first), receiver.unpacked(second)
    assert (number, one.text) == (1, shared.text)
    assert other is one


def test_what_can_not_be_sent_is_refused() -> None:
    with pytest.raises(TypeError):
        Sender().packed(number for number in range(2))
