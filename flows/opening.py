"""Opens a page in the browser once its server answers: `python -m flows.opening ADDRESS`."""

import os
import sys
import time
import urllib.request
import webbrowser

_PAUSE_SECONDS = 0.5


def open_when_served(address: str, *, starter: int) -> None:
    """Wait for the server and open the page; give up once the process that starts the server has ended."""
    while os.getppid() == starter:
        try:
            with urllib.request.urlopen(address, timeout=5):
                webbrowser.open(address)
                return
        except OSError:
            time.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    open_when_served(sys.argv[1], starter=os.getppid())
