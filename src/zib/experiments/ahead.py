"""Compiling ahead: while the first items run, another process compiles what later ones need.

The first run after an installation spends more time compiling contextual policies than playing
them, and compiling keeps one processor busy. What the other process compiles is found in the cache.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from zib.core import cache as _cache

CONTEXTUAL = ("fig3", "fig4", "figS3", "links")
COMMAND = (sys.executable, "-m", "zib.experiments.ahead")


def worthwhile(names: Sequence[str], processors: int) -> bool:
    """Whether something else is to be run before the first contextual item, and can be meanwhile.

    Examples
    --------
    >>> worthwhile(["fig2", "fig3"], 2), worthwhile(["fig3", "figS1"], 2)
    (True, False)
    """
    later = any(name in CONTEXTUAL for name in names[1:])
    return _cache.FOLDER is not None and processors > 1 and later and names[0] not in CONTEXTUAL


@contextmanager
def compiling_ahead(names: Sequence[str]) -> Iterator[None]:
    """Compile contextual policies in another process, as long as the block runs."""
    if not worthwhile(names, os.cpu_count() or 1):
        yield
        return
    quiet = subprocess.DEVNULL  # whatever goes wrong there: the items compile for themselves
    child = subprocess.Popen(COMMAND, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        yield
    finally:
        child.terminate()
        child.wait()


def main() -> None:
    """Play two rounds with every policy of figure 3."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asked
    import zib
    from zib.experiments.contextual_panels import HORIZON, panel_ids, policies

    maker = zib.env.make(panel_ids((7,))[0])
    for spec in policies(maker, HORIZON).values():  # type: ignore[arg-type]
        zib.simulate([spec], maker, horizon=2, replications=1, backend="serial", progress=False)


if __name__ == "__main__":
    main()
