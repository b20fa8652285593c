"""The stages of dvc.yaml and configs/dvc.yaml: every experiment once, and what it depends on."""

from collections.abc import Mapping
from typing import Any

import yaml

from fedfisher_core.experiments.contract import load
from tests.configs import CONFIGS, ROOT

DEFAULT: Mapping[str, Any] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
OTHERS: Mapping[str, Any] = yaml.safe_load((ROOT / "configs/dvc.yaml").read_text())["stages"]["experiment"]
EMBEDDED = "mnist5k"


def names_of(outs: list[dict[str, Any]]) -> list[str]:
    return [name for out in outs for name in out]


def test_every_settings_file_is_in_one_stage() -> None:
    commands = {stage["cmd"]: name for name, stage in DEFAULT.items()}
    assert commands.pop("fedfisher stage params.yaml") == "demo"
    others = [f"fedfisher stage configs/{name}.yaml" for name in OTHERS["matrix"]["name"]]
    assert others == sorted(set(others))
    assert sorted([*commands, *others]) == [f"fedfisher stage configs/{path.name}" for path in CONFIGS]


def test_stages_are_for_what_their_commands_write() -> None:
    """A name of another file would be found out by DVC when all is computed."""
    names = {"demo": "${name}", "privacy_demo": load(ROOT / "configs/privacy_demo.yaml").name}
    for stage, name in names.items():
        assert names_of(DEFAULT[stage]["outs"]) == [f"stages/{name}", f"results/{name}/results.json"]
    assert names_of(OTHERS["outs"]) == ["stages/${item.name}", "results/${item.name}/results.json"]
    assert [load(ROOT / f"configs/{name}.yaml").name for name in OTHERS["matrix"]["name"]] == OTHERS["matrix"]["name"]


def test_outputs_stay_until_a_command_replaces_them() -> None:
    """What `dvc pull` has brought would be computed again if DVC removed it before a stage runs."""
    for stage in (*DEFAULT.values(), OTHERS):
        assert all(settings["persist"] for out in stage["outs"] for settings in out.values())


def test_stages_depend_on_their_settings_the_code_and_the_embedded_data_where_it_is_used() -> None:
    code, data = {"fedfisher_core"}, {f"data/{EMBEDDED}"}
    assert set(DEFAULT["demo"]["deps"]) == code | data
    assert DEFAULT["demo"]["params"] == [{"params.yaml": None}]
    assert set(DEFAULT["privacy_demo"]["deps"]) == code | data | {"configs/privacy_demo.yaml"}
    assert set(OTHERS["deps"]) == code | {"configs/${item.name}.yaml"}
    assert not [name for name in OTHERS["matrix"]["name"] if EMBEDDED in (ROOT / f"configs/{name}.yaml").read_text()]
    assert all((ROOT / path).exists() for path in code)
