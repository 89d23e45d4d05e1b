"""The command line: ``zib simulate | arena | join | advise | evaluate | live | serve | …``."""

from zib.cli import arena, cache, data, join, live, logs, reproduce, serve, simulate, warm
from zib.cli.program import app

__all__ = ["app", "main"]

COMMANDS = (
    arena,
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
