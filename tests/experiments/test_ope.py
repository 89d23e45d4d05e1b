"""The experiment on off-policy evaluation, run small."""

import math
from pathlib import Path

import numpy as np
import pytest
from tests.experiments.made import small

from zib.experiments import ope
from zib.experiments.harness import Scaled
from zib.experiments.record import Context


def test_the_truth_is_that_of_many_rows() -> None:
    """Monte Carlo over a million customers, within five standard errors (6e-7)."""
    rng = np.random.default_rng(0)
    context = rng.normal(size=(1_000_000, 3))
    for regime in ope.REGIMES:
        often, much = ope._means(regime, context)
        worth = (ope._target(context) * often * much).sum(axis=1)
        error = worth.std() / math.sqrt(len(worth))
        # beyond a probability of one the model is capped, which quadrature does not see well
        assert abs(ope._truth(regime) - worth.mean()) < 5 * error + 1e-4 * worth.mean()


def test_logs_have_the_promised_share_of_rewards() -> None:
    rng = np.random.default_rng(1)
    for regime in ope.REGIMES:
        log = ope._log(regime, rng, 20_000)
        share = np.mean(log.reward != 0)
        # the arms pay between 0.82 and 1.22 times as often as the name says
        assert 0.6 * regime.prob < share < 1.5 * regime.prob


def test_record(tmp_path: Path) -> None:
    few = small(ope.OffPolicy, rows=3_000, logs=Scaled(quick=4, paper=4))
    record = few.run(Context("quick", 0, 1, tmp_path))
    assert len(record.tables[0].rows) == len(ope.REGIMES) * len(ope.METHODS)
    assert [v.status for v in record.verdicts].count("open") >= 1  # four logs decide little
    assert (tmp_path / "ope.png").exists()


def test_verdicts_follow_the_numbers() -> None:
    squares = np.random.default_rng(0).chisquare(1, 1000)

    def rows(ratio: float, coverage: float, logs: int = 1000) -> list[ope.Summary]:
        return [
            ope.Summary(
                r.name, m, logs, 1.0, 0.0, 0.1, ratio, 0.01, coverage, 0.001, 1.0,
                squares[:logs] * (1.0 if m == "IPS" else ratio),
            )
            for r in ope.REGIMES for m in ope.METHODS
        ]  # fmt: skip

    assert [v.status for v in ope.verdicts(rows(0.7, 0.97), 20_000)] == ["holds"] * 3
    assert [v.status for v in ope.verdicts(rows(1.4, 0.90), 20_000)] == ["fails"] * 3
    assert [v.status for v in ope.verdicts(rows(1.0, 0.93), 20_000)] == ["open"] * 3
    few = ope.verdicts(rows(0.7, 1.0, logs=24), 20_000)
    assert [v.status for v in few] == ["open"] * 3
    assert all(v.words.startswith("undecided at this scale (N = 24)") for v in few)


def test_the_jackknife_error_of_a_ratio_is_about_right() -> None:
    """Against the spread over 2000 repetitions; both have a relative error of a few per cent."""
    rng = np.random.default_rng(2)
    errors, ratios = [], []
    for _ in range(2000):
        one = rng.normal(size=100)
        other = one + rng.normal(0, 0.5, 100)
        errors.append(ope._ratio_error(one, other))
        ratios.append(one.var() / other.var())
    assert np.mean(errors) == pytest.approx(np.std(ratios), rel=0.1)
