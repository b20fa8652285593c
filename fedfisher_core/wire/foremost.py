"""Numbers that stand for a network's weights where none are sent, and have their place in a budget."""

from fedfisher_core.wire.signed import Signed


class Foremost(Signed):
    """Any numbers that come first when a budget is divided, as weights do.

    Shares in proportion to the number of entries would leave the sums of C classes 2 C / (n + 1) of what a second
    moment of n features gets, and thus less than a bit an entry where features are many.
    """


FOREMOST = Foremost()
