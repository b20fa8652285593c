"""Settings of weights that were trained before."""

from pydantic import Field, model_validator

from fedfisher_core.settings.base import Folder, Line, Several, Strict


class PretrainedSettings(Strict):
    """Weights that all clients start from: a file by its digest, or those that the project or a package names."""

    weights: Line | None = Field(
        None,
        description="name of a pre-trained network in `fedfisher models`, whose file, digest and licence are known; a "
        "head on a frozen trunk, TRUNK/NAME, that stands beside the whole network in model.name is drawn at random",
    )
    file: Folder | None = Field(
        None, description="of named tensors: safetensors, or what torch.save writes and weights_only reads"
    )
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="digest of the file, in hexadecimal digits")
    licence: Line | None = Field(None, description="of the file, for the report")
    trunk_sha256: str | None = Field(
        None,
        pattern="^[0-9a-f]{64}$",
        description="digest of the weights that made the features which a head in the file has learned from; with "
        "model.name: TRUNK/NAME only",
    )
    drawn: Several[Line] = Field(
        (),
        description="names of weights that are drawn at random instead, such as a last layer that had other classes; "
        "all others are the file's",
    )

    @model_validator(mode="after")
    def _one_source(self) -> "PretrainedSettings":
        of_file = (self.file is not None, self.sha256 is not None)
        beside = (*of_file, self.licence is not None, self.trunk_sha256 is not None)
        if (self.weights is not None and any(beside)) or (self.weights is None and not all(of_file)):
            raise ValueError("allowed: weights alone, or file and sha256 together, with or without licence")
        return self
