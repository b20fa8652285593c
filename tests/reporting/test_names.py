import pytest

from fedfisher_core.reporting.formats import in_words


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("fedfisher_kfac", "FedFisher (K-FAC)"),
        ("fedfisher_kfac, compressed", "FedFisher (K-FAC), compressed"),
        ("ma_echo_official_uncompressed", "MA-Echo, official form, uncompressed"),
        ("ensemble (ensemble_by_holders)", "Ensemble (ensemble_by_holders)"),
        ("my_own_method", "my own method"),
        ("100 steps", "100 steps"),
        ("", ""),
    ],
)
def test_labels_are_written_in_words(label: str, words: str) -> None:
    assert in_words(label) == words
