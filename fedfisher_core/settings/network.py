"""Settings of the network: its name, the weights that it starts from, and its adapters."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fedfisher_core.settings.base import Count, Folder, Line, Positive, Several, Strict, WithLater


class PretrainedSettings(Strict):
    """Weights that all clients start from: a file with its digest, or a network that the project or a package names."""

    weights: Line | None = Field(
        None,
        description="name of a pre-trained network in `fedfisher models`, whose file, digest and licence are known; a "
        "head on a frozen trunk, TRUNK/NAME, that model.name lists next to the whole network is drawn at random",
    )
    file: Folder | None = Field(
        None, description="of named tensors: safetensors, or what torch.save writes and weights_only reads"
    )
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="digest of the file, in hexadecimal digits")
    licence: Line | None = Field(None, description="of the file, for the report")
    trunk_sha256: str | None = Field(
        None,
        pattern="^[0-9a-f]{64}$",
        description="digest of the trunk's weights, on whose features the head in the file was trained; only with "
        "model.name: TRUNK/NAME",
    )
    drawn: Several[Line] = Field(
        (),
        description="names of weights that are drawn at random instead, such as a last layer with other classes; all "
        "others are read from the file",
    )

    @model_validator(mode="after")
    def _one_source(self) -> "PretrainedSettings":
        of_file = (self.file is not None, self.sha256 is not None)
        extra = (*of_file, self.licence is not None, self.trunk_sha256 is not None)
        if (self.weights is not None and any(extra)) or (self.weights is None and not all(of_file)):
            raise ValueError("allowed: weights alone, or file and sha256 together, with or without licence")
        return self


class LoraSettings(WithLater):
    """The adapters of minilm/lora and folder:PATH/lora: alpha / rank B A x is added to what linear layers make of x."""

    later = frozenset({"ranks"})

    rank: int = Field(8, ge=1, le=384, description="of each product B A")
    alpha: Positive = Field(16.0, description="divided by the rank, it multiplies the product")
    targets: Several[Line] = Field(
        ("query", "value"),
        min_length=1,
        description="layers of each block that have an adapter: query, key, value, attention_output, intermediate or "
        "output",
    )
    trained: Literal["both", "b"] = Field(
        "both", description="both factors; or B alone, for an A that is drawn once for all (FFA-LoRA)"
    )
    ranks: Annotated[tuple[Count, ...], Field(min_length=1)] | None = Field(
        None,
        description="of the clients' products, in turn, each up to `rank`, which the server's network has; alpha is "
        "divided by `rank` for all. Default: all have `rank`",
    )

    @model_validator(mode="after")
    def _ranks_fit(self) -> "LoraSettings":
        if self.ranks is not None and max(self.ranks) > self.rank:
            raise ValueError(f"ranks={list(self.ranks)} exceed rank={self.rank}; allowed: up to it")
        if self.ranks is not None and self.trained == "b":
            raise ValueError(f"ranks={list(self.ranks)} with trained='b', for one A; allowed: trained='both'")
        return self


class ModelSettings(WithLater):
    """The network that every client trains."""

    later = frozenset({"lora"})

    name: Several[str] = Field(
        ("lenet",),
        min_length=1,
        description="names that `fedfisher models` lists, one setting each. TRUNK/NAME, as mobilenet_v2/linear, is "
        "the network NAME on features that a frozen pre-trained trunk makes of images: clients train and send only it. "
        "folder:PATH/NAME is the same on the encoder of texts in a folder of Hugging Face's, and folder:PATH/lora has "
        "adapters in that encoder",
    )
    bias: bool = Field(False, description="whether layers have a bias; the papers' models have none")
    trunk_size: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="height and width in pixels of the images that a trunk is given; default: the trunk's own",
    )
    initialisation: Literal["same", "different"] = Field(
        "same", description="whether all clients start from the same weights, or each from its own"
    )
    running_statistics: Literal["merged", "estimated", "refused"] = Field(
        "merged",
        description="means and variances of batch normalisation at the server: merged, as weights are; estimated anew "
        "on its validation images for the merged network, which pages then mark; or refused, with the networks that "
        "have them",
    )
    pretrained: PretrainedSettings | None = Field(
        None, description="weights that all clients start from; default: drawn at random"
    )
    lora: LoraSettings = LoraSettings()

    @model_validator(mode="after")
    def _pretrained_weights_are_shared(self) -> "ModelSettings":
        if self.pretrained is not None and self.initialisation != "same":
            raise ValueError(
                f"model.initialisation={self.initialisation!r} with model.pretrained, which all clients start from; "
                "allowed: 'same'"
            )
        return self
