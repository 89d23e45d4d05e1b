"""The command line: ``zib reproduce``."""

from zib.cli import reproduce
from zib.cli.program import app

__all__ = ["app", "main"]

COMMANDS = (reproduce,)  # importing a module registers its commands


def main() -> None:
    """Run the command line."""
    app()
