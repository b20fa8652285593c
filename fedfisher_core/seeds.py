"""One seed tree: every random choice has a generator of its own, named by what it is for."""

import hashlib
import json
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np
import torch


class Stream(IntEnum):
    """What a generator is for; its number is part of the tree and never changes."""

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


def _sequence(seed: int, stream: Stream, *branch: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(entropy=seed, spawn_key=(int(stream), *branch))


def numpy_generator(seed: int, stream: Stream, index: int = 0) -> np.random.Generator:
    """Build the NumPy generator of one branch of the tree.

    Args:
        seed: the root, a benchmark's seed.
        stream: what the generator is for.
        index: which of several, such as the client's number.

    Returns:
        A generator that shares no state with any other branch.
    """
    return np.random.default_rng(_sequence(seed, stream, index))


def torch_generator(seed: int, stream: Stream, index: int = 0, *, turn: int = 1) -> torch.Generator:
    """Build the torch generator of one branch of the tree, on the CPU so that all devices draw the same numbers.

    Args:
        seed: the root, a benchmark's seed.
        stream: what the generator is for.
        index: which of several, such as the client's number.
        turn: the round, from 1; later rounds have branches of their own below the first one's.

    Returns:
        A generator that shares no state with any other branch.
    """
    later = () if turn == 1 else (turn,)
    return _torch_generator(_sequence(seed, stream, index, *later))


def torch_generator_for(use: Mapping[str, Any], seed: int, stream: Stream, index: int = 0) -> torch.Generator:
    """Build a torch generator that serves one use alone, below one branch of the tree; see `torch_generator`.

    Args:
        use: everything that tells it from other uses, as JSON has it.
        seed: the root, a benchmark's seed.
        stream: what the generator is for.
        index: which of several, such as the client's number.

    Returns:
        A generator that shares no state with any other branch or use.
    """
    content = hashlib.sha256(json.dumps(use, sort_keys=True).encode()).digest()
    return _torch_generator(_sequence(seed, stream, index, int.from_bytes(content)))


def _torch_generator(sequence: np.random.SeedSequence) -> torch.Generator:
    return torch.Generator().manual_seed(int(sequence.generate_state(1, np.uint64)[0]) >> 1)
