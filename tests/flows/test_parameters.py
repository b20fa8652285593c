"""What Prefect takes as parameters of a deployment, by the schema that it keeps of them."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from prefect.utilities.callables import parameter_schema

from flows.experiment import flow_of

ROOT = Path(__file__).parents[2]
FILES = [*sorted(ROOT.glob("configs/*.yaml")), ROOT / "params.yaml"]


@cache
def validator(experiment: str) -> Draft202012Validator:
    """What Prefect's server asks before a run of an experiment is made."""
    return Draft202012Validator(parameter_schema(flow_of(experiment).fn).model_dump())


def refusals(settings: dict[str, Any]) -> list[str]:
    """Name the places that are refused."""
    found = validator(settings.get("experiment", "benchmark")).iter_errors({"settings": settings})
    return [".".join(map(str, error.path)) for error in found]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_a_file_says_is_taken_from_a_deployment(path: Path) -> None:
    assert refusals(yaml.safe_load(path.read_text())) == []


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"seeds": "one"}, "settings.seeds"),
        ({"seeds": []}, "settings.seeds"),
        ({"partition": {"alpha": ["large"]}}, "settings.partition.alpha"),
        ({"partition": {"shift": ["some"]}}, "settings.partition.shift"),
        ({"methods": [3]}, "settings.methods"),
        ({"train": {"objective": {"name": 3}}}, "settings.train.objective"),
        ({"rounds": {"server_optimiser": [3]}}, "settings.rounds.server_optimiser"),
    ],
)
def test_what_no_form_allows_is_refused_by_its_name(settings: dict[str, Any], place: str) -> None:
    assert refusals(settings) == [place]
