"""Who reads what a command prints."""

import os
import select
import sys


def nobody_reads() -> bool:
    """Whether who read the standard output has had enough of it, as `head` has; then what is left of it is dropped."""
    output = select.poll()
    output.register(sys.stdout, select.POLLOUT)
    if not any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0)):
        return False
    # Python writes what is left at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True
