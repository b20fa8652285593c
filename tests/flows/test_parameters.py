"""What Prefect takes as parameters of a deployment, by the schema that it keeps of them."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from prefect.utilities.callables import parameter_schema

from flows.experiment import flow_of

ROOT = Path(__file__).parents[2]
FILES = [*sorted(ROOT.glob("configs/*.yaml")), ROOT / "params.yaml"]


def refusals(settings: dict[str, Any]) -> list[str]:
    """Ask as Prefect's server does, before a run is made."""
    schema = parameter_schema(flow_of(settings.get("experiment", "benchmark")).fn)
    found = Draft202012Validator(schema.model_dump()).iter_errors({"settings": settings})
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
