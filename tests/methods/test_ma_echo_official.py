"""The authors' code of MA-Echo."""

import numpy as np
import pytest
import torch

from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.null_space import OfficialProjection
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.fisher.layers import to_matrix
from fedfisher_core.models.spec import ModelSpec
from tests import tiny
from tests.methods.clients import (
    aggregate,
)
from tests.methods.echo import by_bias, close, different, replaced


@by_bias
def test_a_single_client_keeps_its_official_model_but_for_classes_that_it_lacks(spec: ModelSpec) -> None:
    (upload,) = different(spec)[:1]
    own = upload[Weights].tensors
    assert close(aggregate("ma_echo_official", [upload], spec=spec).networks[0], own, atol=0)
    lacking = replaced(upload, LabelCounts({"counts": torch.tensor([7.0, 1.0, 0.0])}))
    result = aggregate("ma_echo_official", [lacking], spec=spec)
    assert result.details["classes_of_nobody"] == 2
    for key, tensor in result.networks[0].items():
        if key.startswith("head"):
            assert torch.equal(tensor[0], own[key][0])
            assert not tensor[1:].any()
        else:
            assert torch.equal(tensor, own[key])


@by_bias
def test_the_official_step_moves_local_models_in_their_null_spaces_and_averages_them(spec: ModelSpec) -> None:
    uploads = different(spec)
    counts = ([9.0, 0.0, 1.0], [3.0, 2.0, 0.0], [0.0, 4.0, 1.0])
    uploads = [
        replaced(one, LabelCounts({"counts": torch.tensor(row)})) for one, row in zip(uploads, counts, strict=True)
    ]
    (network,) = aggregate("ma_echo_official", uploads, spec=spec, steps=1).networks
    for layer in ("conv", "hidden"):
        matrices = [to_matrix(one[Weights].tensors, layer).double().numpy() for one in uploads]
        spaces = [one[OfficialProjection].tensors[layer].double().numpy() for one in uploads]
        start = np.mean(matrices, axis=0)
        eye = np.eye(start.shape[1])
        merged = start - 1.6 / 3 * sum((start - w) @ (eye - q) for w, q in zip(matrices, spaces, strict=True))
        local = [w + 1.6 * (merged - w) @ q for w, q in zip(matrices, spaces, strict=True)]
        assert to_matrix(network, layer).numpy() == pytest.approx(np.mean(local, axis=0), abs=1e-5)
    rows = [to_matrix(one[Weights].tensors, "head") for one in uploads]
    expected = torch.stack([(rows[0][0] + rows[1][0]) / 2, (rows[1][1] + rows[2][1]) / 2, 0 * rows[0][2]])
    assert torch.allclose(to_matrix(network, "head"), expected, atol=1e-6)


def official_by_hand(models: list[np.ndarray], spaces: list[np.ndarray], steps: int, step_size: float) -> np.ndarray:
    """The authors' loop with normalised steps, in double; a row that can't move is NaN there, and stays here."""
    w, v = np.mean(models, axis=0), [one.copy() for one in models]
    eye = np.eye(w.shape[1])
    for _ in range(steps):
        w = w + sum(step_size / len(v) * (w - one) @ (q - eye).T for one, q in zip(v, spaces, strict=True))
        for i, q in enumerate(spaces):
            move = (w - v[i]) @ q.T
            length = np.linalg.norm(move, axis=1, keepdims=True)
            v[i] = v[i] + step_size * np.divide(move, length, out=np.zeros_like(move), where=length > 0)
    return np.mean(v, axis=0)


@pytest.mark.parametrize("apart", [1.0, 1e-3], ids=lambda one: f"apart by {one:g}")
@pytest.mark.parametrize("left", [1.0, 1e-4, 1e-9], ids=lambda one: f"{one:g} left")
@by_bias
def test_normalised_official_steps_are_the_authors_however_short(spec: ModelSpec, left: float, apart: float) -> None:
    """Also from one start, where clients are close, and where their data leave them hardly a direction."""
    base = tiny.initial(spec)
    uploads = []
    for upload in different(spec):
        own = {key: base[key] + apart * one for key, one in upload[Weights].tensors.items()}
        # A unit that no client's training reached.
        own["hidden.weight"][2] = base["hidden.weight"][2]
        if spec.bias:
            own["hidden.bias"][2] = base["hidden.bias"][2]
        spaces = {key: left * one for key, one in upload[OfficialProjection].tensors.items()}
        uploads.append(replaced(upload, Weights(own), OfficialProjection(spaces)))
    settings = {"normalise": True, "step_size": 0.05 * apart, "steps": 10}
    (network,) = aggregate("ma_echo_official", uploads, spec=spec, **settings).networks
    for layer in ("conv", "hidden"):
        matrices = [to_matrix(one[Weights].tensors, layer).double().numpy() for one in uploads]
        spaces = [one[OfficialProjection].tensors[layer].double().numpy() for one in uploads]
        expected = official_by_hand(matrices, spaces, 10, settings["step_size"])
        found, start = to_matrix(network, layer).double().numpy(), np.mean(matrices, axis=0)
        moved = np.linalg.norm(expected - start)
        assert np.linalg.norm(found - expected) < 1e-3 * moved
    assert torch.equal(to_matrix(network, "hidden")[2], to_matrix(base, "hidden")[2])
