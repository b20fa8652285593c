"""One seed tree: every random choice has a separate generator, named by its purpose."""

import hashlib
import json
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np
import torch


class Stream(IntEnum):
    """The purpose of a generator. Its number is part of the tree and never changes."""

    PARTITION = 0
    VALIDATION = 1
    INITIALISATION = 2
    CLIENT = 3
    SERVER = 4
    ATTACK = 5
    FISHER = 6
    SECURE = 7
    AUDIT = 8
    SAMPLE = 9
    SHIFT = 10
    COHORT = 11
    PERSONALISATION = 12
    MODES = 13
    CANARY = 14


def _sequence(seed: int, stream: Stream, *branch: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(entropy=seed, spawn_key=(int(stream), *branch))


def numpy_generator(seed: int, stream: Stream, index: int = 0) -> np.random.Generator:
    """Build the NumPy generator of one branch of the tree, which shares no state with any other."""
    return np.random.default_rng(_sequence(seed, stream, index))


def torch_generator(seed: int, stream: Stream, index: int = 0, *, round_number: int = 1) -> torch.Generator:
    """Build the torch generator of one branch of the tree, on the CPU so that all devices draw the same numbers.

    Args:
        round_number: from 1; later rounds have separate branches below the first round's.
    """
    later = () if round_number == 1 else (round_number,)
    return _torch_generator(_sequence(seed, stream, index, *later))


def torch_generator_for(use: Mapping[str, Any], seed: int, stream: Stream, index: int = 0) -> torch.Generator:
    """Build a torch generator for one use, below one branch of the tree; see `torch_generator`.

    Args:
        use: everything that distinguishes it from other uses, as JSON has it.
    """
    content = hashlib.sha256(json.dumps(use, sort_keys=True).encode()).digest()
    return _torch_generator(_sequence(seed, stream, index, int.from_bytes(content)))


def _torch_generator(sequence: np.random.SeedSequence) -> torch.Generator:
    return torch.Generator().manual_seed(int(sequence.generate_state(1, np.uint64)[0]) >> 1)
