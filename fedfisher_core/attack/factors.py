"""Which Kronecker factors of a client an attacker compares with those of its images."""

from enum import StrEnum

from fedfisher_core.errors import InputError


class Factors(StrEnum):
    """A choice of the factors A_1 .. A_L of the layers' inputs and G_1 .. G_L of the gradients at their outputs."""

    ALL = "all"
    """All as they are: the largest have the most say, the A of trained networks, whose G are smaller by far."""

    FIRST_INPUTS = "first_inputs"
    """A_1 alone, the second moment of what the network is given, which none of its weights enters."""

    LATER_INPUTS = "later_inputs"
    """A_2 .. A_L."""

    OUTPUTS = "outputs"
    """G_1 .. G_L."""

    RELATIVE = "relative"
    """All, each in units of its own squared size."""

    def compares(self, *, layer: int, outputs: bool) -> bool:
        """Say whether a factor is compared.

        Args:
            layer: number of its layer, in the order in which the network runs them, from 0.
            outputs: whether it is of the gradients at the outputs, rather than of the inputs.

        Returns:
            Whether it is.
        """
        match self:
            case Factors.FIRST_INPUTS:
                return not outputs and layer == 0
            case Factors.LATER_INPUTS:
                return not outputs and layer > 0
            case Factors.OUTPUTS:
                return outputs
            case _:
                return True

    def after(self, name: str) -> str:
        """Write the choice after a name; nothing where all factors are compared as they are."""
        title = _TITLES.get(self)
        return name if title is None else f"{name}, {title}"

    def require_layers(self, count: int) -> None:
        """Make sure that a network has factors of this choice.

        Args:
            count: number of its layers.

        Raises:
            InputError: it has none.
        """
        if not any(self.compares(layer=layer, outputs=outputs) for layer in range(count) for outputs in (False, True)):
            allowed = ", ".join(one for one in Factors if one is not self)
            raise InputError(
                f"inversion.factors={self.value!r}, but the attacked network has {count} layer, which has no such "
                f"factors; allowed: {allowed}"
            )


_TITLES = {
    Factors.FIRST_INPUTS: "first inputs alone",
    Factors.LATER_INPUTS: "later inputs alone",
    Factors.OUTPUTS: "outputs alone",
    Factors.RELATIVE: "all factors alike",
}
