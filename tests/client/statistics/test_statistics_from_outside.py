"""A statistic of another package is compressed, summed, released and attacked through its own class."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import pytest
import torch
from torch import Size, Tensor, nn

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.configured import ConfiguredStatistic, configure_statistics
from fedfisher_core.client.statistics.statistic import ServerView, Statistic, statistics
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.registry import Registry
from fedfisher_core.engine.store import read_tensors
from fedfisher_core.federation.secure import collect_securely, sums_of
from fedfisher_core.federation.start import load_start
from fedfisher_core.federation.uploads import TENSORS
from fedfisher_core.methods.method import Method, method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import Summation, Sums
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.privacy.accountant import Noise
from fedfisher_core.privacy.attack.cases import case_of
from fedfisher_core.privacy.attack.evidence import Knowledge, evidence_for, evidence_of, squared_size
from fedfisher_core.privacy.fishers import PrivateLocal, require_private
from fedfisher_core.settings import PrivacySettings
from tests import tiny, walked
from tests.client.statistics.outside import (
    LikeParameters,
    NoisyMean,
    Sketch,
    Update,
    clipped_sum,
    directions,
)
from tests.methods.clients import bind_written, server

ROOT = Path(__file__).parents[3]
CPU = torch.device("cpu")


def configured(*uploads: type[Statistic], **chosen: Mapping[str, Any]) -> tuple[ConfiguredStatistic, ...]:
    return configure_statistics(uploads, chosen)


def local(count: int = 12, *, seed: int = 0) -> Local:
    network = tiny.TINY.load(tiny.initial(seed=seed))
    return tiny.local(network, tiny.examples(count, seed=seed))


def private(client: Local, *, release: float = 0.5) -> PrivateLocal:
    shared = {one.name: getattr(client, one.name) for one in fields(Local)}
    noise = Noise(training=1.0, release=release, epsilon=1.0)
    return PrivateLocal(**shared, privacy=PrivacySettings(epsilon=1.0, delta=1e-3), noise=noise)


def test_keyword_arguments_are_settings() -> None:
    weights, sketch = configured(Weights, Sketch, sketch={"rank": 6})
    assert weights.described() == {}
    assert sketch.described() == {"rank": 6, "seed": 0}
    found = sketch.compute(local()).tensors["sketch"]
    mean = local().examples.inputs.mean(0).flatten()
    torch.testing.assert_close(found, directions(6, len(mean), 0) @ mean)
    assert sketch.shapes(tiny.TINY) == {"sketch": Size([6])}
    assert configured(Sketch) == configured(Sketch, sketch={"rank": 4})
    assert hash(configured(Sketch)) == hash(configured(Sketch, sketch={"rank": 4}))


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"sketch": {"rnak": 2}}, "unknown setting 'statistics.sketch.rnak'; did you mean 'rank'? allowed: rank, seed"),
        ({"sketch": {"rank": 0}}, "statistics.sketch.rank=0: "),
        ({"sketch": {"rank": "many"}}, "statistics.sketch.rank='many': "),
        ({"sketch": 3}, "statistics.sketch=3: must be a mapping of settings"),
        ({"weights": {"rank": 2}}, "unknown setting 'statistics.weights.rank'"),
        ({"kfac": {"rank": 2}}, "unknown setting 'statistics.kfac.rank'"),
        ({"sketsch": {}}, "unknown statistic 'sketsch'; did you mean 'sketch'?"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        configure_statistics((Weights, Sketch), chosen)
    assert message in str(caught.value)


def test_shapes_can_ask_for_nothing_that_the_computation_does_not_know() -> None:
    class Odd(Sketch):
        name = "odd"

        @classmethod
        def shapes(cls, spec: ModelSpec, *, rank: int = 4, width: int = 1) -> dict[str, Size]:
            return {"sketch": Size([rank * width])}

    with pytest.raises(InputError, match="statistic 'odd': `shapes` takes 'width'"):
        configured(Odd)


def test_a_setting_without_type_is_refused() -> None:
    class Untyped(Sketch):
        name = "untyped"

        @classmethod
        def compute(cls, local: Local, *, rank=4) -> Self:  # type: ignore[no-untyped-def, override]
            return cls({})

    with pytest.raises(InputError, match="statistic 'untyped': argument 'rank' needs a type and a default"):
        configured(Untyped)


def _terms(upload: Upload) -> dict[str, dict[str, Tensor]]:
    return {"update": {name: tensor.double() for name, tensor in upload[Update].tensors.items()}}


def _moved(server: Server, sums: Sums) -> Aggregate:
    return Aggregate.of({name: server.initial[name] + one for name, one in sums.mean("update").items()})


def moved(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Add the mean update to the initial weights."""
    return Aggregate.of(uploads[0][Update].tensors)


@pytest.fixture
def own_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a method out of the lists that other tests look at."""
    own: Registry[Method] = Registry(noun="method", group="fedfisher.nothing", builtin=lambda: None)
    for module in ("configured", "method"):
        monkeypatch.setattr(f"fedfisher_core.methods.{module}.methods", own)
    method("moved", uploads=(Update,), reference="https://example.org", sums=Summation(_terms, _moved))(moved)


def test_it_is_summed_securely(own_methods: None) -> None:
    chosen = bind_written(
        "moved",
        {"wire": {"budget": "none", "server_view": "secure_sum"}},
        [tiny.TINY],
        statistics={"update": {"step": 2.0}},
    )
    clients = [local(size, seed=size) for size in (5, 8, 3)]
    updates = [{one.statistic: one.compute(client) for one in chosen.uploads} for client in clients]
    (cell,) = tiny.tiny_settings(Path("unused")).seeded_settings()

    def reader(found: Mapping[type[Statistic], Statistic]) -> Callable[[], Mapping[type[Statistic], Statistic]]:
        return lambda: found

    collected = collect_securely(
        chosen,
        cell,
        {number: reader(found) for number, found in enumerate(updates)},
        {number: len(client.examples) for number, client in enumerate(clients)},
        session=b"outside",
        private=b"outside",
    )
    result = chosen.of_sums(server(), sums_of(collected, CPU)).networks[0]
    for name, initial in server().initial.items():
        weighted = [len(c.examples) * 2 * dict(c.network.named_parameters())[name].detach() for c in clients]
        torch.testing.assert_close(result[name].float(), initial + sum(weighted, torch.zeros(())) / 16)


def test_settings_of_statistics_are_checked_whether_or_not_a_method_uses_them() -> None:
    assert bind_written("fedavg", {}, [tiny.TINY], statistics={"sketch": {"rank": 2}}).uploads == configured(Weights)
    with pytest.raises(InputError, match=r"statistics\.sketch\.rank=0: "):
        bind_written("fedavg", {}, [tiny.TINY], statistics={"sketch": {"rank": 0}})


def test_with_privacy_it_is_refused_by_its_name() -> None:
    words = "privacy with statistic 'update'; allowed: 'weights', 'diagonal_fisher', 'input_moments', 'kf"
    with pytest.raises(InputError, match=words):
        require_private([Weights, Update])
    (update,) = configured(Update)
    with pytest.raises(InputError, match="privacy with statistic 'update'"):
        update.compute(private(local()))


def test_it_may_have_a_release_of_its_own() -> None:
    require_private([Weights, NoisyMean])
    (mean,) = configured(NoisyMean, noisy_mean={"radius": 2.0})
    client = local(200)
    plain, released = mean.compute(client).tensors["mean"], mean.compute(private(client, release=3.0)).tensors["mean"]
    torch.testing.assert_close(plain, clipped_sum(client, 2.0).float() / 200)
    assert (released - plain).std().item() == pytest.approx(2.0 * 3.0 / 200, rel=0.4)
    assert torch.equal(released, mean.compute(private(client, release=3.0)).tensors["mean"])


def test_the_noise_of_a_release_is_no_other_ones() -> None:
    client = private(local())
    drawn = [
        torch.rand(8, generator=one)
        for one in (client.noise_generator("a"), client.noise_generator("b"), client.generator.clone_state())
    ]
    assert not any(torch.equal(one, other) for one, other in zip(drawn, [*drawn[1:], drawn[0]], strict=True))


def test_a_computation_of_its_own_inherits_no_release() -> None:
    with pytest.raises(InputError, match=r"statistic 'leaky' has mechanisms=0; allowed .* `release` of its own: None"):

        class Leaky(Weights):
            name = "leaky"

            @classmethod
            def compute(cls, local: Local) -> Self:
                return cls({"image": local.examples.inputs[0]})


def test_two_statistics_of_one_name_are_refused() -> None:
    with pytest.raises(InputError) as caught:

        class Weights(Update):
            name = "weights"

    for named in ("'weights'", "by this project", f"by module {__name__!r}", "it stays this project's"):
        assert named in str(caught.value)
    assert statistics.get("weights").__module__ == "fedfisher_core.client.statistics.weights"
    with pytest.raises(InputError, match="statistic 'update' is registered twice"):

        class Nameless(Update):
            pass


def test_a_class_that_is_made_again_takes_its_own_place() -> None:
    def make() -> type[Statistic]:
        class Again(Update):
            name = "again"

        return Again

    first, second = make(), make()
    assert statistics.get("again") is second
    assert first is not second


def test_what_leaves_something_to_subclasses_is_not_registered() -> None:
    class Unfinished(LikeParameters):
        name = "unfinished"

    assert "unfinished" not in list(statistics)
    assert Update in [statistics.get(name) for name in statistics]


def test_it_sees_the_initial_weights(own_methods: None, workplace: Path) -> None:
    done = walked.walk_tiny(workplace, {"moved": {}}, model={"initialisation": "different"})
    artifacts = done.outcome.artifacts
    found = read_tensors(done.client(1, "moved")["update"], TENSORS)
    weights = read_tensors(artifacts[done.plan.federations.training(done.federation, 1).name], TENSORS)
    initial = load_start(artifacts[done.plan.federations.start(done.federation, 1).name], CPU)
    for name, tensor in found.items():
        assert tensor.abs().max() > 0
        torch.testing.assert_close(tensor, weights[name] - initial[name])


@dataclass(frozen=True)
class MeanEvidence:
    """The sketch of the client's mean image."""

    given: Tensor

    def loss(self, network: nn.Module, images: Tensor) -> Tensor:
        means = images.mean(1).flatten(1)
        return (means @ directions(len(self.given), means.shape[1], 0).T - self.given).square().sum(1)

    @property
    def size(self) -> float:
        return squared_size([self.given])


@evidence_for(Sketch, cases={ServerView.SUM: "sum of sketches"})
def sketch_evidence(statistic: Sketch, knowledge: Knowledge) -> MeanEvidence:
    return MeanEvidence(statistic.tensors["sketch"])


def test_it_brings_the_attacks_likelihood() -> None:
    case = case_of("sketchy", {"weights": ServerView.SUM, "sketch": ServerView.SUM}, compressed=True)
    assert case.name == "sum of models and sum of sketches"
    client = local()
    knowledge = Knowledge(client.network, client.examples.inputs, share=0.5, target=0)
    evidence = evidence_of(Sketch.compute(client), knowledge)
    images = torch.stack([client.examples.inputs, tiny.examples(12, seed=5).inputs])
    own, other = evidence.loss(client.network, images).tolist()
    assert own == pytest.approx(0, abs=1e-8)
    assert other > 0.01


def test_without_a_likelihood_the_attack_refuses_it_by_name() -> None:
    views = {"weights": ServerView.SUM, "update": ServerView.SUM}
    with pytest.raises(InputError, match=r"no attack is defined on 'update'.*allowed: weights .*sketch \(sum\)"):
        case_of("moving", views, compressed=False)


def test_its_likelihood_goes_together_with_others() -> None:
    together = {"weights": ServerView.SUM, "kfac": ServerView.EACH, "sketch": ServerView.SUM}
    case = case_of("curious", together, compressed=False)
    assert case.name == "sum of models and the client's K-FAC and sum of sketches"


def test_another_package_adds_a_statistic_in_one_file(tmp_path: Path) -> None:
    (tmp_path / "brightness.py").write_text(
        '''
from fedfisher_core.client.statistics.statistic import ServerView, TensorStatistic
from fedfisher_core.communication.wire.tensors import SIGNED
from torch import Size


class Brightness(TensorStatistic):
    """The mean pixel."""

    name = "brightness"
    server_view = ServerView.SUM
    structure = SIGNED

    @classmethod
    def compute(cls, local, *, power: int = 1):
        return cls({"mean": (local.examples.inputs**power).mean()[None]})

    @classmethod
    def shapes(cls, spec):
        return {"mean": Size([1])}
'''
    )
    information = tmp_path / "brightness-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: brightness\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[fedfisher.statistics]\nbrightness = brightness\n")
    program = (
        "from fedfisher_core.client.statistics.configured import configure_statistics\n"
        "from fedfisher_core.client.statistics.statistic import statistics\n"
        "one = statistics.get('brightness')\n"
        "print(sorted(statistics), configure_statistics([one], {'brightness': {'power': 2}})[0].described())"
    )
    told = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "'brightness', 'class_gaussians', 'class_moments', 'class_sums', 'dense_fisher'" in told.stdout
    assert "'gram', 'input_moments', 'input_sums', 'kfac'" in told.stdout
    assert "{'power': 2}" in told.stdout
