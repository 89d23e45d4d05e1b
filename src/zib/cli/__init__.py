"""The command line: ``zib reproduce | data``."""

from zib.cli import data, reproduce
from zib.cli.program import app

__all__ = ["app", "main"]

COMMANDS = (data, reproduce)  # importing a module registers its commands


def main() -> None:
    """Run the command line."""
    app()
