"""``python -m zib.cli``."""

from zib.cli import main

main()
