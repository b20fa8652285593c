"""Uploads as bytes, also of statistics of another package, and their reading client by client."""

import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedfisher_core.client.statistics.configured import ConfiguredStatistic, configure_statistics
from fedfisher_core.client.statistics.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import StoredUploads, Upload, decode, encode, upload_schema
from fedfisher_core.communication.wire.budget import Family, fedavg_bits
from fedfisher_core.communication.wire.elementwise import Float32, Uniform
from fedfisher_core.communication.wire.structure import Fixed
from fedfisher_core.data.layouts import Images
from fedfisher_core.engine.errors import CorruptArtifactError, InputError
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import WireSettings
from tests import tiny
from tests.client.statistics.outside import (
    ExactUpdate,
    GreedyUpdate,
    SignBits,
    UnderstatedSigns,
    Update,
    UpdateSigns,
    WeightsAgain,
    made,
)

CPU = torch.device("cpu")
LENET = ModelSpec("lenet", Images(1, 28, 28), classes=10)
UNLIMITED = WireSettings(budget="none")
STATISTICS: tuple[type[Statistic], ...] = (Weights, KFAC, LabelCounts)


def computed(
    classes: tuple[type[Statistic], ...] = STATISTICS, spec: ModelSpec = tiny.TINY_WITH_BIAS
) -> list[Statistic]:
    local = tiny.local(spec.load(tiny.initial(spec)), tiny.examples(12, spec=spec))
    local = replace(local, approximations=frozenset({Approximation.DIAGONAL, Approximation.KFAC}))
    return [cls.compute(local) for cls in classes]


def sent_as(
    statistics: list[Statistic],
    *,
    spec: ModelSpec = tiny.TINY_WITH_BIAS,
    wire: WireSettings = UNLIMITED,
    num_examples: int = 12,
) -> bytes:
    schema = upload_schema(configure_statistics([type(statistic) for statistic in statistics], {}), spec, wire)
    return encode(schema, statistics, num_examples=num_examples)


def received(
    payload: bytes,
    classes: tuple[type[Statistic], ...] = STATISTICS,
    spec: ModelSpec = tiny.TINY_WITH_BIAS,
    wire: WireSettings = UNLIMITED,
) -> Upload:
    return decode(payload, upload_schema(configure_statistics(classes, {}), spec, wire), classes, CPU)


@pytest.mark.parametrize("classes", [(Weights,), (KFAC, Weights), STATISTICS])
def test_what_arrives_is_what_was_sent(classes: tuple[type[Statistic], ...]) -> None:
    sent = computed(classes)
    upload = received(sent_as(sent), classes)
    assert upload.num_examples == 12
    assert list(upload.statistics) == list(classes)
    for cls, statistic in zip(classes, sent, strict=True):
        arrived = upload[cls]
        assert isinstance(arrived, cls)
        assert list(arrived.tensors) == list(statistic.tensors)
        for name, tensor in statistic.tensors.items():
            assert torch.equal(arrived.tensors[name], tensor)


def test_numbers_of_any_size_arrive() -> None:
    spec = tiny.LINEAR
    values = torch.tensor([0.0, -0.0, 1e-45, 3.4e38, -1e-38, 1 / 3])
    sent = Weights({"head.weight": values.repeat(18).reshape(3, 36)})
    upload = received(sent_as([sent], spec=spec, num_examples=2**40), (Weights,), spec)
    assert upload.num_examples == 2**40
    assert torch.equal(upload[Weights].tensors["head.weight"].signbit(), sent.tensors["head.weight"].signbit())
    assert torch.equal(upload[Weights].tensors["head.weight"], sent.tensors["head.weight"])


def test_what_arrives_is_not_tied_to_what_was_sent() -> None:
    sent = computed((Weights,))
    payload = sent_as(sent)
    first = received(payload, (Weights,))
    first[Weights].tensors["conv.weight"].zero_()
    assert torch.equal(received(payload, (Weights,))[Weights].tensors["conv.weight"], sent[0].tensors["conv.weight"])


def test_the_payload_costs_its_numbers_and_a_small_header() -> None:
    bits = 8 * len(sent_as(computed()))
    formula = 32 * sum(one.wire_spec(tiny.TINY_WITH_BIAS).size for one in configure_statistics(STATISTICS, {}))
    assert formula < bits <= formula + 8 * 64


@pytest.mark.parametrize("classes", [(Weights,), (Weights, DiagonalFisher), (Weights, KFAC), (Weights, Gram)])
def test_what_is_sent_costs_no_more_than_fedavg(classes: tuple[type[Statistic], ...]) -> None:
    fedavg = len(sent_as(computed((Weights,), LENET), spec=LENET, wire=WireSettings(budget="fedavg")))
    sent = computed(classes, LENET)
    payload = sent_as(sent, spec=LENET, wire=WireSettings(budget="fedavg"))
    assert len(payload) <= fedavg
    arrived = received(payload, classes, LENET, WireSettings(budget="fedavg"))
    for cls, statistic in zip(classes, sent, strict=True):
        for name, tensor in statistic.tensors.items():
            error = (arrived[cls].tensors[name] - tensor).norm() / tensor.norm()
            assert error < 0.02, (cls, name)


def test_a_budget_that_nothing_fits_is_refused_with_what_is_needed() -> None:
    with pytest.raises(InputError, match=r"the budget is 1000"):
        upload_schema(configure_statistics((Weights, KFAC), {}), LENET, WireSettings(budget=1000))
    with pytest.raises(InputError, match=r"family 'float32' takes \d+ bits"):
        upload_schema(configure_statistics((Weights, KFAC), {}), LENET, WireSettings(budget="fedavg", format="float32"))


def _cut(payload: bytes) -> bytes:
    return payload[:-1]


def _cut_to_a_header(payload: bytes) -> bytes:
    return payload[:10]


def _lengthened(payload: bytes) -> bytes:
    return payload + b"\0\0\0\0"


def _nothing(payload: bytes) -> bytes:
    return b""


def _foreign(payload: bytes) -> bytes:
    return b"\x89PNG" + payload[4:]


@pytest.mark.parametrize("damage", [_cut, _cut_to_a_header, _lengthened, _nothing, _foreign])
def test_a_damaged_payload_is_refused(damage: Callable[[bytes], bytes]) -> None:
    payload = sent_as(computed())
    with pytest.raises(CorruptArtifactError, match="payload"):
        received(damage(payload))


def test_no_flipped_byte_is_accepted() -> None:
    payload = sent_as(computed((Weights,)))
    for position in range(len(payload)):
        flipped = bytearray(payload)
        flipped[position] ^= 1 << position % 8
        with pytest.raises(CorruptArtifactError, match="payload"):
            received(bytes(flipped), (Weights,))


@pytest.mark.parametrize(
    ("classes", "spec"),
    [
        ((KFAC, Weights, LabelCounts), tiny.TINY_WITH_BIAS),
        ((Weights, KFAC), tiny.TINY_WITH_BIAS),
        (STATISTICS, tiny.TINY),
        (STATISTICS, tiny.LINEAR),
    ],
    ids=["other order", "fewer statistics", "no bias", "other network"],
)
def test_a_payload_of_other_statistics_is_refused(classes: tuple[type[Statistic], ...], spec: ModelSpec) -> None:
    payload = sent_as(computed())
    with pytest.raises(CorruptArtifactError, match="payload"):
        received(payload, classes, spec)


def test_only_what_was_declared_can_be_seen() -> None:
    upload = received(sent_as(computed((Weights,))), (Weights,))
    with pytest.raises(KeyError):
        upload[KFAC]


def stored(folder: Path, count: int, spec: ModelSpec = tiny.TINY) -> tuple[StoredUploads, list[dict[str, Tensor]]]:
    classes = (Weights, DiagonalFisher)
    schema = upload_schema(configure_statistics(classes, {}), spec, WireSettings(budget="none", format="float32"))
    sent, paths = [], []
    for client in range(count):
        weights = tiny.initial(spec, seed=client)
        sent.append(weights)
        paths.append(folder / str(client))
        statistics = [Weights(weights), DiagonalFisher({name: tensor.square() for name, tensor in weights.items()})]
        paths[-1].write_bytes(encode(schema, statistics, num_examples=10 + client))
    cpu = torch.device("cpu")
    readers = [partial(decode, schema=schema, statistics=classes, device=cpu)] * count
    return StoredUploads(paths, [10 + client for client in range(count)], readers, classes, cpu), sent


def test_stored_uploads_are_those_that_were_sent(tmp_path: Path) -> None:
    uploads, sent = stored(tmp_path, 3)
    assert [one.num_examples for one in uploads] == [10, 11, 12]
    assert len(uploads) == 3
    for one, weights in zip(uploads, sent, strict=True):
        assert set(one.statistics) == {Weights, DiagonalFisher}
        assert all(torch.equal(one[Weights].tensors[name], tensor) for name, tensor in weights.items())
    assert torch.equal(uploads[-1][Weights].tensors["head.weight"], sent[2]["head.weight"])
    assert [one.num_examples for one in uploads[1:]] == [11, 12]
    with pytest.raises(IndexError):
        uploads[3]


def test_stored_uploads_hold_one_client_at_a_time(tmp_path: Path) -> None:
    uploads, _ = stored(tmp_path, 4)
    held: list[weakref.ref[Tensor]] = []
    for one in uploads:
        held.append(weakref.ref(one[Weights].tensors["head.weight"]))
        assert one[DiagonalFisher].tensors["head.weight"].min() >= 0
        assert [reference() is not None for reference in held] == [False] * (len(held) - 1) + [True]


def configured(*uploads: type[Statistic], **chosen: Mapping[str, Any]) -> tuple[ConfiguredStatistic, ...]:
    return configure_statistics(uploads, chosen)


PARAMETERS = 44_190
FEDAVG = fedavg_bits(PARAMETERS)


@pytest.mark.parametrize(
    ("wire", "relative"),
    [(WireSettings(), 2**-14), (WireSettings(format="paper"), 2**-14), (WireSettings(budget=800_000), 2**-6)],
)
def test_signed_tensors_are_shortened_to_a_budget(wire: WireSettings, relative: float) -> None:
    uploads = (Weights, Update)
    schema = upload_schema(configured(*uploads), LENET, wire)
    sent = [made(one, LENET) for one in uploads]
    payload = encode(schema, sent, num_examples=3)
    limit = FEDAVG if wire.budget == "fedavg" else wire.budget
    # The paper counts no scales.
    scales = 32 * 2 * len(sent[0].tensors) if wire.format == "paper" else 0
    assert isinstance(limit, int)
    # Up to a bit an entry may be left over.
    assert 0.96 * limit < 8 * len(payload) <= limit + scales
    arrived = decode(payload, schema, uploads, CPU)[Update]
    for name, tensor in made(Update, LENET).tensors.items():
        assert (arrived.tensors[name] - tensor).abs().max() <= relative * tensor.abs().max()
        assert not torch.equal(arrived.tensors[name], tensor)
        assert arrived.tensors[name].min() < 0


@pytest.mark.parametrize("wire_format", ["fedfisher", "paper"])
def test_nothing_raises_its_own_allowance(wire_format: str) -> None:
    wire = WireSettings(format=wire_format)
    schema = upload_schema(configured(Weights, WeightsAgain), LENET, wire)
    uncounted = 32 * 2 * len(LENET.initialise(torch.Generator())) if wire_format == "paper" else 0
    assert schema.bits <= FEDAVG + uncounted
    assert [section.codec for section in schema.sections] == [
        Uniform(15),
        Uniform(14) if wire_format == "fedfisher" else Uniform(15),
    ]
    # Without the weights, a statistic may take all that FedAvg's would.
    (alone,) = upload_schema(configured(WeightsAgain), LENET, wire).sections
    assert alone.codec == Float32()


def test_what_calls_itself_weights_does_not_fit_as_it_is() -> None:
    with pytest.raises(InputError, match=f"family 'float32' takes .* bits, the budget is {FEDAVG}"):
        upload_schema(configured(Weights, WeightsAgain), LENET, WireSettings(format="float32"))


@pytest.mark.parametrize("wire_format", ["fedfisher", "paper"])
@pytest.mark.parametrize("statistic", [GreedyUpdate, ExactUpdate])
def test_a_statistic_that_keeps_to_no_share_is_refused(statistic: type[Statistic], wire_format: str) -> None:
    with pytest.raises(InputError, match=rf"the budget is {FEDAVG}|'greedy_update' takes \d+ bits"):
        upload_schema(configured(Weights, statistic), LENET, WireSettings(format=wire_format))


@pytest.mark.parametrize("wire", [WireSettings(), WireSettings(budget="none"), WireSettings(format="paper")])
def test_a_codec_of_its_own_is_always_used_and_counted(wire: WireSettings) -> None:
    uploads = (Weights, UpdateSigns)
    schema = upload_schema(configured(*uploads), LENET, wire)
    assert schema.sections[1].codec == SignBits()
    payload = encode(schema, [made(one, LENET) for one in uploads], num_examples=3)
    if wire.budget == "fedavg":
        assert 8 * len(payload) <= FEDAVG
    sent, arrived = made(UpdateSigns, LENET), decode(payload, schema, uploads, CPU)[UpdateSigns]
    for name, tensor in sent.tensors.items():
        assert torch.equal(arrived.tensors[name].signbit(), tensor.signbit())
        assert arrived.tensors[name].abs().unique().numel() == 1


@pytest.mark.parametrize("wire_format", ["fedfisher", "paper"])
@pytest.mark.parametrize("uploads", [(UpdateSigns,), (Weights, UpdateSigns)])
def test_a_codec_of_its_own_that_does_not_fit_is_refused_by_name(
    uploads: tuple[type[Statistic], ...], wire_format: str
) -> None:
    bits = SignBits().bits(configured(UpdateSigns)[0].wire_spec(LENET).tensors)
    with pytest.raises(InputError, match=f"'update_signs' takes {bits} by its own codec"):
        upload_schema(configured(*uploads), LENET, WireSettings(budget=40_000, format=wire_format))


def test_a_codec_that_writes_more_than_it_announced_is_refused() -> None:
    schema = upload_schema(configured(UnderstatedSigns), tiny.TINY, WireSettings())
    with pytest.raises(InputError, match=r"statistic 'understated_signs' took .* bits .* allowed: the 8"):
        encode(schema, [made(UnderstatedSigns, tiny.TINY)], num_examples=1)


def test_a_family_of_formats_knows_no_statistic_by_name() -> None:
    wire = WireSettings(format=Family.PAPER.value)
    with pytest.raises(InputError, match="'update', 'gram'; allowed: one besides the weights"):
        upload_schema(configured(Weights, Update, Gram), LENET, wire)
    assert Fixed(SignBits()) == UpdateSigns.structure
