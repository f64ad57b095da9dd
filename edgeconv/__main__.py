"""`python -m edgeconv`."""

from edgeconv.cli import main

main()
