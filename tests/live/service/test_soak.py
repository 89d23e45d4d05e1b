"""A run through HTTP; `python -m tests.live.service.soak` makes 10⁶ decisions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.service import soak

pytestmark = pytest.mark.slow


def test_after_a_run_through_http_the_sums_are_the_fold_of_the_log(
    tmp_path: Path, seed: int
) -> None:
    found = soak.run(tmp_path, "live.db", decisions=16_000, seed=seed)
    assert found["duplicate"] > 20
    assert found["parked"] > 10
    assert found["late"] > 3
    assert found["updates of pages"] >= 6
    assert found["scrapes"] >= 3
    assert found["grown by"] < 40.0  # megabytes; a leak of 1 kB a request would be 10
