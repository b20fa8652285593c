"""What is put into a store for a moment, so that others can show that they see the same one."""

import secrets
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Mark:
    """A file that only those can read back who see the store.

    Args:
        name: of the file.
        said: its content.
    """

    name: str
    said: str

    @classmethod
    def new(cls) -> Self:
        """Make a mark that is like no other."""
        return cls(f".seen-{secrets.token_hex(4)}", secrets.token_hex(8))
