"""Fresh databases of both kinds for every test of the ledger."""

from __future__ import annotations

import itertools
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


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Return a function that makes an empty database and returns what `Ledger` is given.

    Tests that ask for it run on both databases (PostgreSQL with the slow ones).
    """
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgres")
        return server.fresh
    numbers = itertools.count()
    return lambda: str(tmp_path / f"ledger-{next(numbers)}.db")


@pytest.fixture
def database(new_database: Callable[[], str]) -> str:
    """An empty database: what `Ledger` is given."""
    return new_database()
