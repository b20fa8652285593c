"""What of Opacus' warnings is known to be of no concern here."""

import warnings

_IRRELEVANT = (
    # The bound holds for every order; near the ends of the accountant's list it is only less tight.
    "Optimal order is the (smallest|largest) alpha",
    # Images need no gradient; the gradients at a layer's outputs are all that is taken.
    "Full backward hook is firing when gradients are computed with respect to module outputs",
)


def quieten() -> None:
    """Silence those warnings, and no others, in the whole process: filters that come and go aren't safe in threads."""
    for message in _IRRELEVANT:
        warnings.filterwarnings("ignore", message=message)
