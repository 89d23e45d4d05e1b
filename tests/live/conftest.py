"""Fresh databases of both kinds for every test of the ledger."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.live.servers import Server, Unavailable


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """One PostgreSQL server for the whole session; tests take a schema of their own (`fresh`)."""
    try:
        server = Server()
    except Unavailable as reason:
        pytest.skip(str(reason))
    yield server
    server.close()


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where the system has one: most tests need not wait for a disk."""
    memory = Path("/dev/shm")
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="zib-") as folder:
        yield Path(folder)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def new_database(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Return a function that makes an empty database and returns what `Ledger` is given.

    Tests that ask for it run on both databases (PostgreSQL with the slow ones).
    """
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgres")
        return server.fresh
    numbers = itertools.count()
    folder = request.getfixturevalue("quick_folder")
    return lambda: str(folder / f"ledger-{next(numbers)}.db")


@pytest.fixture
def database(new_database: Callable[[], str]) -> str:
    """An empty database: what `Ledger` is given."""
    return new_database()
