from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest
from distributed.protocol import pickle

from fedfisher_core.store import Artifact
from flows.packed import Packed


def named(number: int) -> Artifact:
    key = sha256(str(number).encode()).hexdigest()
    return Artifact("payloads", key[:24], key[24:48], Path("/a/store/payloads") / key[:24])


def test_packed_work_gives_what_the_work_gives_wherever_it_is_read() -> None:
    packed = Packed(partial(int, "7"))
    assert pickle.loads(pickle.dumps(packed))() == 7


def test_packed_work_raises_what_the_work_raises() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        Packed(partial(int, "seven"))()


def test_references_to_many_uploads_are_short() -> None:
    work = partial(len, [named(number) for number in range(1000)])
    packed = Packed(work)
    assert packed() == 1000
    assert len(packed.data) < len(pickle.dumps(work)) / 2
