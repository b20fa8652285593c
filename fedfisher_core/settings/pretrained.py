"""Settings of weights that were trained before."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from fedfisher_core.settings.base import Folder, Line, Strict, as_tuple


class PretrainedSettings(Strict):
    """A file of weights that all clients start from."""

    file: Folder = Field(description="of named tensors: safetensors, or what torch.save writes and weights_only reads")
    sha256: str = Field(pattern="^[0-9a-f]{64}$", description="digest of the file, in hexadecimal digits")
    drawn: Annotated[tuple[Line, ...], BeforeValidator(as_tuple)] = Field(
        (),
        description="names of weights that are drawn at random instead, such as a last layer that had other classes; "
        "all others are the file's",
    )
