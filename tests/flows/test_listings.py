import json
from pathlib import Path

from torch import nn

from fedfisher_core.models.fully_connected import SoftmaxRegression
from fedfisher_core.models.spec import ModelSpec, model
from flows import listings
from tests import arranged, tiny
from tests.models.trunks import tiny_trunk


def by_name(entries: list[dict[str, object]]) -> dict[object, dict[str, object]]:
    assert [entry["name"] for entry in entries] == sorted(str(entry["name"]) for entry in entries)
    return {entry["name"]: entry for entry in entries}


def test_methods_are_listed_with_what_they_upload_and_their_settings() -> None:
    entries = by_name(listings.methods())
    kfac = entries["fedfisher_kfac"]
    assert kfac["reference"] == "https://arxiv.org/abs/2403.12329"
    assert kfac["uploads"] == {"weights": "server sees sum", "kfac": "server sees each"}
    solver = kfac["settings"]["solver"]
    assert solver.startswith("conjugate_gradients/gradient_descent/paper, default conjugate_gradients (steps=")
    prior = {"label_prior": kfac["settings"]["label_prior"]}
    assert prior["label_prior"].startswith("number, default 0.0: tau: tau log(n_c / n) is added")
    # What the docstring says of it.
    floor = "number, default 1e-06: coordinates whose total Fisher is smaller take the FedAvg value"
    assert entries["fisher_merge"]["settings"] == {"fisher_floor": floor} | prior
    assert (entries["fedavg"]["settings"], entries["ensemble"]["settings"]) == (prior, {})
    assert "label_prior" not in entries["afl"]["settings"]
    assert (entries["fedavg"]["ranked"], entries["ensemble"]["ranked"]) == (True, False)
    assert entries["fedavg"]["server_holds"] == "bytes of weights of one client"
    assert entries["fedfisher_kfac"]["server_holds"] == "bytes of weights + kfac, times the clients"
    assert (entries["fedavg"]["shared_start"], entries["ties"]["shared_start"]) == (False, True)


def test_objectives_are_listed_with_what_they_read_and_their_settings() -> None:
    entries = by_name(listings.objectives())
    assert entries["plain"]["settings"] == {}
    assert entries["plain"]["reads"] == "outputs and labels alone"
    assert entries["logit_adjustment"]["reads"] == "the client's label counts"
    assert entries["fedprox"]["reference"] == "https://arxiv.org/abs/1812.06127"
    assert entries["fedprox"]["settings"]["mu"].startswith("number, default 0.01: strength of the pull")


def test_data_sets_are_listed_with_their_size_and_place() -> None:
    entries = by_name(listings.datasets())
    assert entries["mnist5k"] == {
        "name": "mnist5k",
        "summary": "10 classes, 1 x 28 x 28",
        "hub": "embedded",
        "augmentation": "none",
        "clients": "of any split",
    }
    assert entries["cifar100"]["summary"] == "100 classes, 3 x 32 x 32"
    assert entries["cifar100"]["augmentation"] == "crop and flip"
    assert entries["cifar100"]["coarse labels"] == "column 'coarse_label'"
    assert entries["digits"]["hub"] == "made of mnist and usps"
    assert entries["digits"]["clients"] == "named by column 'domain'"
    assert entries["heart_disease"]["missing numbers"] == "filled with each client's own mean"
    assert entries["tiny"]["hub"] == tiny.TINY_DATA.hub
    assert (entries["table"]["summary"], entries["table"]["hub"]) == ("3 classes, 6 numbers", "none")
    assert entries[arranged.TEXTS.name]["summary"] == "3 classes, 5 tokens of 12"
    assert entries["banners"]["summary"] == "3 classes, 1 x 6 x 9"


def test_networks_are_listed_with_their_size() -> None:
    entries = by_name(listings.models())
    assert entries["lenet"]["sizes"] == {
        "1 x 28 x 28": "44,190 parameters",
        "3 x 32 x 32": "61,770 parameters",
    }
    assert entries["bag"]["sizes"]["1 x 28 x 28"] == "refused: model 'bag' takes tokens; the data has 1 x 28 x 28"
    assert entries["gru"]["sizes"]["40 tokens of 65"] == f"{65 * 16 + 3 * 128 * (16 + 128) + 128 * 10:,} parameters"
    assert entries["mlp"]["summary"] == "Inputs - 400 - 200 - 100 - classes, with ReLU."


def test_trunks_are_listed_with_where_their_weights_are(tmp_path: Path) -> None:
    trunk = tiny_trunk.register(tmp_path)
    listed = by_name(listings.models())["tiny_trunk/NAME"]
    assert listed["summary"] == "The network NAME on 7 features of a frozen, pre-trained trunk."
    assert (listed["image size"], listed["weights"]) == ("8 x 8, or model.trunk_size", trunk.file)
    Path(trunk.file).unlink()
    assert by_name(listings.models())["tiny_trunk/NAME"]["weights"].startswith("missing: trunk 'tiny_trunk': there is")


def test_folders_are_listed_with_the_encoders_that_are_read() -> None:
    from fedfisher_core.models.trunks.folder import KINDS

    listed = by_name(listings.models())["folder:PATH/NAME"]
    assert listed["encoders"] == ", ".join(sorted(KINDS))


def undocumented(spec: ModelSpec) -> nn.Module:
    return SoftmaxRegression(spec)


def test_a_network_without_docstring_is_listed() -> None:
    model("undocumented")(undocumented)
    assert by_name(listings.models())["undocumented"]["summary"] == ""


def test_everything_listed_is_json() -> None:
    for entries in (listings.methods(), listings.objectives(), listings.datasets(), listings.models()):
        assert json.loads(json.dumps(entries)) == entries


def test_a_listing_is_written_for_people() -> None:
    entries = [
        {"name": "one", "summary": "First.", "reference": "https://example.org", "settings": {"steps": "integer"}},
        {"name": "two", "summary": "Second.", "settings": {}},
    ]
    assert listings.as_text(entries) == (
        "one: First.\n  reference: https://example.org\n  settings:\n    steps: integer\n\n"
        "two: Second.\n  settings: none"
    )
