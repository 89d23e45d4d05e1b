"""A long run of equal arms through a bad network; `python -m benchmarks --only live` plays 10⁶."""

from __future__ import annotations

import pytest

from tests.live import soak

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("interpreting")]


def test_after_a_long_run_through_a_bad_network_the_sums_are_the_fold_of_the_log(
    database: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak, "LOOKS", 10)
    found = soak.run(database, decisions=20_000, seed=seed)
    assert found["duplicate"] > 20
    assert found["parked"] > 20
    assert found["late"] > 5
    # 9 confidence sequences at level 0.9999: together they miss with probability below 0.001,
    # and each share is 5 standard deviations off with probability 6e-7.
    assert found["missed"] == 0
    assert max(found["holdout"], found["weights"]) < 5.0
