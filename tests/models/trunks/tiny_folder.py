"""Folders of small encoders with random weights, as transformers saves them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

WORDS = ["[CLS]", "<pad>", "[SEP]", "[UNK]", "a", "good", "bad", "film"]
PADDING = 1
COMMON = {"vocab_size": 10, "max_position_embeddings": 12, "pad_token_id": PADDING}
BERT = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
KINDS: dict[str, tuple[str, dict[str, int]]] = {
    "bert": ("Bert", BERT),
    "roberta": ("Roberta", BERT),
    "xlm-roberta": ("XLMRoberta", BERT),
    "distilbert": ("DistilBert", {"dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 12}),
}


def write(folder: Path, kind: str = "bert", *, seed: int = 0, head: str = "Model") -> Any:
    """Write the encoder's folder with a tokenizer, and return the network.

    Args:
        head: what transformers calls the network, such as ForMaskedLM.
    """
    name, sizes = KINDS[kind]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = getattr(transformers, f"{name}Config")(**COMMON, **sizes)
        network = getattr(transformers, f"{name}{head}")(config).eval()
        # Transformers draws weights so small that outputs hardly differ.
        for parameter in network.parameters():
            if parameter.ndim == 2:
                parameter.data.normal_()
    network.save_pretrained(folder)
    made = Tokenizer(WordLevel({word: code for code, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    made.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 2)])
    made.save(str(folder / "tokenizer.json"))
    return network
