"""A service killed under load; `python -m tests.live.service.kills` kills a hundred times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.servers import Server
from tests.live.service import kills

pytestmark = pytest.mark.slow


def test_nothing_acknowledged_is_lost_or_doubled_when_a_service_is_killed(
    tmp_path: Path, seed: int
) -> None:
    found = kills.run(tmp_path, "live.db", kills=5, seed=seed)
    assert found["lost"] == []
    assert found["acknowledged"] > 5 * 20
    assert found["connections broken"] > 5


def test_nothing_acknowledged_is_lost_or_doubled_when_workers_are_killed(
    tmp_path: Path, postgres: Server, seed: int
) -> None:
    found = kills.run(tmp_path, postgres.fresh(), kills=6, seed=seed, workers=2)
    assert found["lost"] == []
    assert found["acknowledged"] > 6 * 20
