"""The command line: ``zib simulate | join | advise | evaluate | live | serve | data | …``."""

from zib.cli import cache, data, join, live, logs, reproduce, serve, simulate, warm
from zib.cli.program import app

__all__ = ["app", "main"]

COMMANDS = (
    cache,
    data,
    join,
    live,
    logs,
    reproduce,
    serve,
    simulate,
    warm,
)  # importing a module registers its commands


def main() -> None:
    """Run the command line."""
    app()
