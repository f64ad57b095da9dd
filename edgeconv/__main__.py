"""`python -m edgeconv`. As `python -I -m edgeconv` even `edgeconv` is not taken from a checkout."""

import sys

# -m puts the current directory first, whose modules are of whoever wrote a checkout.
if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]

from edgeconv.cli import main

main()
