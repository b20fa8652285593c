from pathlib import Path

from tests.walked import walk_tiny


def keys(workplace: Path, kind: str) -> set[str]:
    return {path.name for path in (workplace / "artifacts" / kind).iterdir()}


def test_statistics_are_those_of_what_a_client_holds_whatever_the_server_holds(workplace: Path) -> None:
    methods = {"fedfisher_diag": {}, "regmean": {}}
    walk_tiny(
        workplace, methods, data={"dataset": "tiny", "validation_size": 10}, partition={"scheme": "iid", "clients": 3}
    )
    before = {kind: keys(workplace, kind) for kind in ("clients", "statistics", "partitions")}
    assert len(before["statistics"]) == 6
    walk_tiny(
        workplace, methods, data={"dataset": "tiny", "validation_size": 9}, partition={"scheme": "iid", "clients": 3}
    )
    after = {kind: keys(workplace, kind) for kind in before}
    assert len(after["partitions"]) == 2
    assert (after["clients"], after["statistics"]) == (before["clients"], before["statistics"])
