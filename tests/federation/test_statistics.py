from pathlib import Path

from tests.walked import walk_tiny


def keys(workplace: Path, kind: str) -> set[str]:
    return {path.name for path in (workplace / "artifacts" / kind).iterdir()}


def test_another_method_trains_no_client_and_computes_only_the_statistics_that_are_missing(workplace: Path) -> None:
    settings = {"data": {"dataset": "tiny"}, "partition": {"scheme": "iid", "clients": 3}}
    walk_tiny(workplace, {"fedfisher_diag": {}, "fedavg": {}}, **settings)
    before = {kind: keys(workplace, kind) for kind in ("clients", "statistics")}
    assert len(before["clients"]) == len(before["statistics"]) == 3
    walk_tiny(workplace, {"fedfisher_diag": {}, "fisher_merge": {}, "regmean": {}}, **settings)
    after = {kind: keys(workplace, kind) for kind in before}
    assert after["clients"] == before["clients"]
    # Fisher merging reads the same Fishers; RegMean's Gram matrices are new.
    assert len(after["statistics"]) == 6
    assert before["statistics"] < after["statistics"]
