from __future__ import annotations

import pytest

from tests.live.servers import Server


@pytest.mark.slow
def test_a_server_gives_empty_schemas_and_comes_back_after_a_restart(postgres: Server) -> None:
    first, second = postgres.fresh(), postgres.fresh()
    assert first != second
    postgres.run("CREATE TABLE kept (n int)")
    postgres.restart("immediate")
    assert postgres.run("SELECT * FROM kept") == []
    postgres.run("DROP TABLE kept")
