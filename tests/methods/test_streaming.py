"""Methods whose server needs sums alone go through the clients one after another."""

import weakref
from collections.abc import Sequence
from copy import deepcopy
from functools import cache

import pytest
import torch
from torch import Tensor

from fedfisher_core.client.statistics.statistic import ServerView
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import methods
from fedfisher_core.models.spec import ModelSpec
from tests import tiny
from tests.methods.clients import aggregate, made_up_uploads

BY_SUMS = sorted(name for name in methods if set(methods.get(name).views.values()) == {ServerView.SUM})
CLIENTS = 8


@cache
def originals(spec: ModelSpec) -> list[Upload]:
    """All clients, which stay in memory, so that none of their tensors counts."""
    return made_up_uploads([tiny.initial(spec, seed=seed) for seed in range(CLIENTS)], spec)


def make(client: int, spec: ModelSpec) -> Upload:
    """Make a client anew, the same each time."""
    return deepcopy(originals(spec)[client])


class Watched(Sequence[Upload]):
    """Clients that are made when they are looked at; counts how many's tensors are held at a time."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._given: list[tuple[int, weakref.ref[Tensor]]] = []
        self.most = 0

    def __len__(self) -> int:
        return CLIENTS

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if index >= CLIENTS:
            raise IndexError(index)
        upload = make(index, self._spec)
        for kind in upload.statistics:
            self._given += [(index, weakref.ref(tensor)) for tensor in upload[kind].tensors.values()]
        self.most = max(self.most, len({client for client, reference in self._given if reference() is not None}))
        return upload


def test_the_methods_that_need_sums_alone() -> None:
    assert {"fedavg", "fisher_merge", "regmean", "fedfisher_diag", "fedfish", "iso_c", "gradient_matching"} <= set(
        BY_SUMS
    )
    assert {"afl", "fedcgs", "gh_lda"} <= set(BY_SUMS)
    assert not {"fedfisher_kfac", "fedpft", "otfusion", "pfnm", "dense", "ensemble"} & set(BY_SUMS)


@pytest.mark.parametrize(
    "name",
    [
        "fedavg",
        "fisher_merge",
        "regmean",
        "fedfisher_diag",
        "fedfisher_full",
        "fedfish",
        "iso_c",
        "gradient_matching",
        "afl",
        "fedcgs",
        "gh_lda",
    ],
)
def test_they_hold_no_more_for_more_clients(name: str) -> None:
    spec = tiny.LINEAR_WITH_BIAS if name in ("afl", "fedcgs", "gh_lda") else tiny.TINY
    watched = Watched(spec)
    (streamed,) = aggregate(name, watched, spec=spec).networks
    # Such as the first, which a mean starts from, and the one before, which is let go of when the next has come.
    assert 1 <= watched.most <= 4
    (at_once,) = aggregate(name, [make(client, spec) for client in range(CLIENTS)], spec=spec).networks
    assert all(torch.equal(streamed[key], tensor) for key, tensor in at_once.items())
