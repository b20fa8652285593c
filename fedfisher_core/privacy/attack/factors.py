"""Which Kronecker factors of a client an attacker compares with those of generated images."""

from enum import StrEnum

from fedfisher_core.engine.errors import InputError


class Factors(StrEnum):
    """A choice of the factors A_1 .. A_L of the layers' inputs and G_1 .. G_L of the gradients at their outputs."""

    ALL = "all"
    """All as they are: the largest count most, which are the A of trained networks, whose G are far smaller."""

    FIRST_INPUTS = "first_inputs"
    """A_1 alone, the second moment of the network's inputs, which does not depend on its weights."""

    LATER_INPUTS = "later_inputs"
    """A_2 .. A_L."""

    OUTPUTS = "outputs"
    """G_1 .. G_L."""

    RELATIVE = "relative"
    """All, each in units of its squared size."""

    def compares(self, *, layer: int, outputs: bool) -> bool:
        """Whether a factor is compared.

        Args:
            layer: number of its layer, in the order in which the network runs them, from 0.
            outputs: whether it is of the gradients at the outputs, rather than of the inputs.
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
        """Append the choice to a name; nothing where all factors are compared as they are."""
        title = _TITLES.get(self)
        return name if title is None else f"{name}, {title}"

    def require_layers(self, count: int) -> None:
        """Refuse, by an InputError, a network whose number of layers leaves no factors of this choice."""
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
