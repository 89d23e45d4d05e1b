"""The command line: ``zib reproduce | advise | evaluate | data``."""

from zib.cli import data, logs, reproduce
from zib.cli.program import app

__all__ = ["app", "main"]

COMMANDS = (data, logs, reproduce)  # importing a module registers its commands


def main() -> None:
    """Run the command line."""
    app()
