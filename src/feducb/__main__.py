"""`python -m feducb`."""

from feducb.cli import main

main()
