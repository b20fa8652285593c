"""`python -m flows.cli`."""

import sys

from flows.cli import main

# A report shows this name in its command.
sys.argv[0] = "fedfisher"
main()
