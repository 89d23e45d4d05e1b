"""What changes over time: sums that do not depend on pieces, tests, sentences, pictures."""

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats

from zib.core.validate import InvalidParameterError
from zib.logs import LoggedData
from zib.logs.advise import advise
from zib.logs.advise.collect import collect
from zib.logs.advise.time_bins import TimeBins
from zib.logs.advise.times import TimeReport, time_report
from zib.logs.passes import Block
from zib.stats.constancy import (
    Dispersion,
    constancy,
    dispersion,
    interaction,
    proportional,
)

START = 1_720_000_000.0  # a Wednesday in July 2024, 9:46 h UTC
DAY = 86_400.0


def drifting_log(kind: str = "", n: int = 30_000, days: float = 20.0, seed: int = 0) -> LoggedData:
    rng = np.random.default_rng(seed)
    time = START + np.sort(rng.random(n)) * DAY * days
    along = (time - START) / (DAY * days)
    arm = rng.integers(0, 3, n)
    if kind == "shares":
        arm = np.where(rng.random(n) < 0.2 + 0.6 * along, 0, 1 + rng.integers(0, 2, n))
    p = np.array([0.04, 0.05, 0.045])[arm]
    if kind in ("common", "shares"):
        p = p * (1.5 - along)
    elif kind == "crossing":
        p = np.where(arm == 0, 0.015 + 0.06 * along, p)
    elif kind == "cycles":
        weekend = np.floor(time / DAY + 3) % 7 >= 5
        p = p * np.where((time % DAY) < DAY / 2, 0.6, 1.4) * np.where(weekend, 1.5, 0.8)
    reward = np.where(rng.random(n) < p, rng.lognormal(3.0, 0.6, n), 0.0)
    return LoggedData.from_arrays(np.array(["a", "b", "c"])[arm], reward, time=time)


def report(log: LoggedData, **options: Any) -> TimeReport:
    found = time_report(collect(log, 0, lambda share: None, **options), 0.95)
    assert found is not None
    return found


# --------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("kind", ["dates", "milliseconds", "numbers", "negative", "unsorted"])
def test_sums_over_time_do_not_depend_on_pieces(kind: str) -> None:
    rng = np.random.default_rng(0)
    n = 4_000
    time = {
        "dates": START + np.sort(rng.random(n)) * 60 * DAY,
        "milliseconds": np.round(1_000 * START + rng.random(n) * 1e8),
        "numbers": np.arange(n, dtype=np.float64),
        "negative": rng.normal(size=n) * 1e-3,
        "unsorted": START + rng.random(n) * 400 * DAY,
    }[kind]
    arm, reward = rng.integers(0, 3, n), np.where(rng.random(n) < 0.2, rng.integers(1, 9, n), 0.0)

    def read(*ends: int) -> TimeBins:
        bins = TimeBins(3)
        for low, high in itertools.pairwise(ends):
            rows = slice(low, high)
            bins.look(Block(0, low, arm[rows], reward[rows], None, np.empty((0, 0)), time[rows]))
        return bins

    whole = read(0, n)
    assert whole.sums[0].sum() == n
    assert whole.sums[2].sum() == reward.sum()
    assert whole.dated == (kind in ("dates", "milliseconds", "unsorted"))
    for pieces in (((0, 1_300, 2_600), (2_600, 2_601, n)), ((0, 1), (1, 2, 9), (9, n))):
        merged, *others = (read(*ends) for ends in pieces)
        for other in others:
            merged.merge(other)
        assert (merged.first, merged.width) == (whole.first, whole.width)
        np.testing.assert_array_equal(merged.sums, whole.sums)
        np.testing.assert_array_equal(merged.week, whole.week)


def test_hours_are_those_of_the_time_zone() -> None:
    # Saturday 23:30 UTC is Sunday 0:30 in Berlin, and a day later, in summer time, Monday 1:30
    time = np.array([1_711_841_400.0, 1_711_841_400.0 + DAY])
    bins = TimeBins(1, "Europe/Berlin")
    bins.look(Block(0, 0, np.zeros(2, np.int64), np.ones(2), None, np.empty((2, 0)), time))
    assert np.flatnonzero(bins.week[0, :, 0]).tolist() == [1, 6 * 24]
    with pytest.raises(InvalidParameterError, match=r"`timezone` must name a time zone"):
        TimeBins(1, "Middle/Earth")
    with pytest.raises(InvalidParameterError, match=r"`timezone` must name a time zone"):
        advise(drifting_log(n=100), timezone=3, simulate=False)


def test_logs_without_times_and_logs_too_short() -> None:
    assert (
        advise(LoggedData.from_arrays([0, 1] * 50, [0.0, 2.0] * 50), simulate=False).times is None
    )
    same = LoggedData.from_arrays([0, 1] * 50, [0.0, 2.0] * 50, time=[START] * 100)
    assert "same time" in report(same).words[0]
    few = LoggedData.from_arrays([0, 1] * 50, [0.0] * 90 + [1.0] * 10, time=START + np.arange(100))
    assert "10 non-zero rewards" in report(few).words[0]


# ---------------------------------------------------------------------------------------- tests


def test_constancy_of_a_share_is_pearsons_chi_square() -> None:
    rng = np.random.default_rng(0)
    n = rng.integers(500, 900, 12).astype(float)
    yes = rng.binomial(n.astype(int), 0.1).astype(float)
    expected = stats.chi2_contingency([yes, n - yes], correction=False)
    p = yes.sum() / n.sum()
    found = constancy(n[:, None], yes[:, None], np.array([p * (1 - p)]), np.zeros(1))
    assert found.statistic * found.freedom == pytest.approx(expected.statistic)
    assert found.p_value == pytest.approx(expected.pvalue)


def test_constancy_of_a_mean_is_an_analysis_of_variance() -> None:
    rng = np.random.default_rng(0)
    groups = [rng.normal(5.0, 2.0, 400) for _ in range(6)]
    n, total = np.full((6, 1), 400.0), np.array([[g.sum()] for g in groups])
    within = np.mean([g.var(ddof=1) for g in groups])
    found = constancy(n, total, np.array([within]), np.zeros(1), Dispersion(1.0, 2_394.0))
    expected = stats.f_oneway(*groups)
    assert found.statistic == pytest.approx(expected.statistic)
    assert found.p_value == pytest.approx(expected.pvalue)


def test_dispersion_is_that_of_sums_that_vary_more() -> None:
    rng = np.random.default_rng(0)
    n = np.full((600, 1), 200.0)
    period, slot = np.arange(600) // 40, np.arange(600) % 10
    rate = 0.1 * (1 + 0.3 * np.sin(period))[:, None] + 0.02 * np.cos(slot)[:, None]
    for spread, expected in ((0.0, 1.0), (0.03, 1.0 + 200 * 0.03**2 / 0.09)):
        yes = rng.binomial(200, np.clip(rng.normal(rate, spread), 0, 1)).astype(float)
        found = dispersion(n, yes, np.array([0.09]), period, slot)
        # its standard error is about 6 %: four of them have probability 6e-5
        assert found.factor == pytest.approx(expected, rel=0.25)


def test_proportional_fits_are_those_of_a_log_linear_model() -> None:
    # margins of the fit are those of the data, which with its form makes it the likelihood's best
    rng = np.random.default_rng(0)
    n = rng.integers(100, 900, (6, 3)).astype(float)
    yes = rng.binomial(n.astype(int), 0.1).astype(float)
    fitted = n * proportional(n, yes, np.ones(3))
    np.testing.assert_allclose(fitted.sum(axis=0), yes.sum(axis=0), rtol=1e-8)
    np.testing.assert_allclose(fitted.sum(axis=1), yes.sum(axis=1), rtol=1e-8)
    assert np.linalg.matrix_rank(fitted / n, tol=1e-9) == 1


def test_groups_that_move_together_are_not_called_different() -> None:
    rng = np.random.default_rng(0)
    n = np.full((10, 3), 20_000.0)
    rise = np.linspace(0.5, 1.5, 10)[:, None]
    base = np.array([0.02, 0.03, 0.05])
    for rates in (base * rise, base + 0.02 * rise):
        yes = rng.binomial(n.astype(int), rates).astype(float)
        p = yes.sum(axis=0) / n.sum(axis=0)
        found = interaction(n, yes, p * (1 - p), np.zeros(3), np.ones(3))
        assert found.p_value > 1e-3  # by chance in one of a thousand
    rates = base * np.hstack([rise, rise[::-1], np.ones_like(rise)])
    yes = rng.binomial(n.astype(int), rates).astype(float)
    assert interaction(n, yes, p * (1 - p), np.zeros(3), np.ones(3)).p_value < 1e-9


# --------------------------------------------------------------------------------------- reports


def test_a_common_drift_is_found_and_called_harmless() -> None:
    found = report(drifting_log("common"))
    assert "p" in found.changes
    assert "mu" not in found.changes
    assert not found.differences_change
    assert not found.shares_change
    assert any(line.startswith("What to do: nothing") for line in found.words)
    p = found.courses[0].p.value
    assert p[0] / p[-1] == pytest.approx(3.0, rel=0.4)


def test_drift_with_changing_shares_asks_for_a_comparison_within_periods() -> None:
    log = drifting_log("shares", n=60_000)
    found = report(log)
    assert found.shares_change
    assert not found.differences_change
    within = {label: estimate.value for label, estimate in found.within}
    frame = log.to_frame()
    frame["period"] = np.searchsorted(found.edges[1:-1], frame["time"], side="right")
    # the same by least squares on rows, weighted by the variance of the arm
    import pandas as pd

    design = pd.get_dummies(frame[["period", "arm"]].astype(str), dtype=float)
    root = 1.0 / frame.groupby("arm")["reward"].transform("std").to_numpy()
    effect, *_ = np.linalg.lstsq(
        design.to_numpy() * root[:, None], frame["reward"].to_numpy() * root, rcond=None
    )
    by_name = dict(zip(design.columns, effect, strict=True))
    assert within["b"] - within["a"] == pytest.approx(by_name["arm_b"] - by_name["arm_a"], rel=1e-3)
    plain = frame.groupby("arm")["reward"].mean()
    assert plain["b"] - plain["a"] > 1.3 * (within["b"] - within["a"])
    assert "Compared within periods" in " ".join(found.words)


def test_arms_that_change_places_call_for_a_policy_that_forgets() -> None:
    found = report(drifting_log("crossing"))
    assert found.differences_change
    assert found.leaders == ("b", "a")
    text = " ".join(found.words)
    assert "zib.mab.Discounted(policy, half_life=" in text
    assert "'b' leads in the first half" in text
    assert [t.arm for t in found.tests if t.arm is not None and t.alarm] == ["a"]


def test_hours_and_weekdays_are_found_and_do_not_pass_for_drift() -> None:
    found = report(drifting_log("cycles", days=35.0))
    assert found.unit == "week"
    assert found.changes == ()
    alarms = {test.about for test in found.tests if test.alarm}
    assert alarms == {"p by hour", "p by weekday"}
    assert found.hours is not None
    assert found.hours.p.value[:12].max() < found.hours.p.value[12:].min()
    assert "matters" in " ".join(found.words)


@pytest.mark.slow
def test_advice_shows_time_on_its_page(tmp_path) -> None:
    advice = advise(drifting_log("crossing"), simulate=False)
    page = advice.write(tmp_path / "advice").read_text(encoding="utf-8")
    assert "Over time" in page
    assert "The differences between the arms change over time" in page
    assert {"times.png", "cycles.png"} <= {file.name for file in (tmp_path / "advice").iterdir()}
    assert "Over time" in str(advice)
    assert advice.to_dict()["times"]["courses"][1]["label"] in "abc"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("days", "arms", "p", "law"),
    [(10.0, 2, 0.02, "log-normal"), (30.0, 5, 0.02, "heavy"), (1.0, 3, 0.1, "Pareto"),
     (60.0, 8, 0.05, "signed"), (14.0, 3, 0.05, "bursts")],
)  # fmt: skip
def test_false_alarms_are_rare(days: float, arms: int, p: float, law: str) -> None:
    # 100 logs in which nothing changes, each with up to nine tests, alarms at 1 % in all: five or
    # more of them have probability 3e-3 at exactly 1 %; measured rates are 0 to 0.5 %.
    rng = np.random.default_rng(5)
    n, alarms, single = 6_000, 0, 0
    for _ in range(100):
        time, rate = START + rng.random(n) * DAY * days, np.full(n, p)
        if law == "bursts":  # users with rows close in time and a chance of their own
            user = rng.integers(0, n // 5, n)
            time = (START + rng.random(n // 5) * DAY * days)[user] + rng.random(n) * 600.0
            rate = rng.beta(0.5, 0.5 / p - 0.5, n // 5)[user]
        size = {"log-normal": lambda: rng.lognormal(3.0, 0.6, n),
                "bursts": lambda: rng.lognormal(3.0, 0.6, n),
                "heavy": lambda: rng.lognormal(1.0, 1.5, n),
                "Pareto": lambda: 1.0 + rng.pareto(2.2, n),
                "signed": lambda: rng.normal(0.3, 1.0, n)}[law]()  # fmt: skip
        reward = np.where(rng.random(n) < rate, size, 0.0)
        log = LoggedData.from_arrays(rng.integers(0, arms, n), reward, time=time)
        tests = report(log).tests
        alarms += any(test.alarm for test in tests if test.arm is None)
        single += any(test.alarm for test in tests if test.arm is not None)
    assert alarms < 5
    assert single < 5
