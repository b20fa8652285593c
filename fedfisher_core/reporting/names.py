"""Methods in words, and which of them this project is about."""

import re

FEDFISHER = frozenset({"fedfisher_diag", "fedfisher_kfac"})
"""The methods of the FedFisher paper."""

OURS = frozenset({"gaussian_distillation", "kfac_distillation", "mixture_distillation"})
"""The methods that are this project's own."""

_NAMES = {
    "best_local": "Best local network",
    "centralised": "Central training",
    "dare": "DARE",
    "dense": "DENSE",
    "ensemble": "Ensemble",
    "ensemble_by_labels": "Ensemble, weighted by labels",
    "ensemble_logits": "Ensemble of logits",
    "fedavg": "FedAvg",
    "fedbens": "FedBEns",
    "fedbens_mixture": "FedBEns, mixture",
    "fedcgs": "FedCGS",
    "fedfish": "FedFish",
    "fedfisher": "FedFisher",
    "fedfisher_diag": "FedFisher (diagonal)",
    "fedfisher_kfac": "FedFisher (K-FAC)",
    "fedlpa": "FedLPA",
    "fedpft": "FedPFT",
    "fisher_merge": "FisherMerge",
    "gaussian_distillation": "Gaussian distillation",
    "gh_lda": "GH-LDA",
    "gradient_matching": "Gradient matching",
    "iso_c": "Iso-C",
    "kfac_distillation": "K-FAC distillation",
    "local": "Local networks",
    "local_mean": "Mean of local networks",
    "ma_echo": "MA-Echo",
    "ma_echo_official": "MA-Echo, official form",
    "ma_echo_ot": "MA-Echo with transport",
    "mats": "MaTS",
    "mixture_distillation": "Mixture distillation",
    "otfusion": "OTFusion",
    "pfnm": "PFNM",
    "pfnm_original": "PFNM, first code",
    "regmean": "RegMean",
    "regmean_plus_plus": "RegMean++",
    "ties": "TIES",
    "tsv_m": "TSV-M",
    "wudi": "WUDI",
}


def in_words(label: str) -> str:
    """Write a method's label in words: "fedfisher_kfac, compressed" is "FedFisher (K-FAC), compressed"."""
    head, *rest = re.split(r"(, | \()", label, maxsplit=1)
    # The longest name that the label begins with says what it is a variant of.
    known = max((name for name in _NAMES if f"{head}_".startswith(f"{name}_")), key=len, default="")
    variant = head[len(known) :].replace("_", " ").strip()
    return ", ".join(part for part in (_NAMES.get(known, ""), variant) if part) + "".join(rest)
