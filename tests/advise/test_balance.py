"""Logs whose arms were not drawn at random: found out, said first, compared all the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.datasets.data import KARLAN_ZINMAN, data_file
from zib import InvalidParameterError
from zib.logs import LoggedData, LogScan
from zib.logs.advise import advise
from zib.logs.advise.balance import BalanceReader, check_balance, doubly_robust
from zib.logs.passes import read
from zib.stats.balance import independent, permutation_test, standardised_differences, terms_of

EFFECT = 0.3  # of the last arm on the log-odds of a reward


def confounded(rng, n, *, arms=2, strength=1.0, chance=0.1, curved=False):
    """A log in which people who pay anyway get the last arm; arms differ by little in truth."""
    x = rng.normal(size=(n, 4))
    likes = x[:, 0] + (0.5 * (x[:, 1] ** 2 - 1.0) if curved else 0.0)
    share = np.exp(strength * likes[:, None] * np.linspace(-1, 1, arms))
    share /= share.sum(axis=1, keepdims=True)
    arm = (rng.random(n)[:, None] > share.cumsum(axis=1)).sum(axis=1).clip(0, arms - 1)
    odds = np.log(chance / (1 - chance)) + 0.8 * likes + 0.3 * x[:, 2]
    p = 1 / (1 + np.exp(-(odds + np.linspace(0, EFFECT, arms)[arm])))
    reward = (rng.random(n) < p) * np.exp(1.0 + 0.3 * x[:, 3]) * rng.gamma(4.0, 0.25, n)
    # in truth, over everybody
    p_last, p_first = (1 / (1 + np.exp(-(odds + effect))) for effect in (EFFECT, 0.0))
    truth = float(((p_last - p_first) * np.exp(1.0 + 0.3 * x[:, 3])).mean())
    return LoggedData.from_arrays(arm, reward, context=x), truth


def checked(log, seed=0):
    reader = BalanceReader(log, seed)
    read(log, reader)
    return check_balance(log, reader, seed)


def robust(log):
    return doubly_robust(log, checked(log), 0.95, 0, lambda share: None)


def last_minus_first(balance):
    along = np.zeros(balance.values.size)
    along[[0, -1]] = -1.0, 1.0
    return float(along @ balance.values), float(np.sqrt(along @ balance.covariance @ along))


def test_a_confounded_log_is_said_first_and_earns_nothing(rng, tmp_path: Path) -> None:
    log, truth = confounded(rng, 3000)
    advice = advise(log)
    balance = advice.balance
    assert balance is not None
    assert balance.fails
    assert balance.comparable
    assert advice.randomised == "no"
    raw = log.reward[log.arm == 1].mean() - log.reward[log.arm == 0].mean()
    value, error = last_minus_first(balance)
    # an error probability of 6e-5 for each of the two
    assert abs(value - truth) < 4 * error
    assert raw - truth > 4 * error
    # the same values stand in the table and in what arms are compared by
    assert [arm.compared[2].value for arm in advice.arms] == balance.values.tolist()
    assert advice.verdict.basis == "doubly robust values"
    assert abs(advice.verdict.differences[0].single.value) == pytest.approx(abs(value))
    assert balance.differences[0].column == "x0"
    assert balance.differences[0].difference > 1.0
    assert (balance.differences[0].high, balance.differences[0].low) == (1, 0)
    assert advice.simulation is None
    text = str(advice)
    assert text.splitlines()[0].startswith("The arms were not drawn at random")
    assert "What it would have earned" not in text
    page = advice.write(tmp_path / "answer").read_text()
    assert page.index("The arms were not drawn at random") < page.index("Recommended")
    assert "What it would have earned" not in page
    assert "starts without it" in advice.recommendation.snippet or advice.recommendation.contextual


def test_a_balanced_log_is_said_in_one_sentence(rng) -> None:
    log, _ = confounded(rng, 2000, strength=0.0)
    advice = advise(log, simulate=False)
    assert advice.balance is not None
    assert not advice.balance.fails
    assert "\nThe arms met similar situations" in str(advice)
    assert all(arm.weighted is None for arm in advice.arms)


def test_a_context_that_decides_everything_is_not_comparable(rng) -> None:
    x = rng.normal(size=(2000, 1))
    arm = (x[:, 0] + 0.05 * rng.normal(size=2000) > 0).astype(int)
    log = LoggedData.from_arrays(arm, (rng.random(2000) < 0.3) * 1.0, context=x)
    advice = advise(log, simulate=False)
    balance = advice.balance
    assert balance is not None
    assert balance.fails
    assert not balance.comparable
    assert balance.kept < 0.25
    assert balance.values is None
    assert advice.verdict.kind == "not comparable"
    assert advice.verdict.arm is None
    assert advice.verdict.words.startswith("Not comparable: in most rows")
    assert any("raw means: what happened" in note for note in advice.notes)


def test_what_is_claimed_is_believed_and_checked(rng) -> None:
    log, _ = confounded(rng, 2000)
    advice = advise(log, simulate=False, randomised=True)
    assert advice.randomised == "yes"
    assert advice.balance is None
    assert any("said to be drawn at random, but the context tells" in note for note in advice.notes)
    share = float(np.mean(log.arm == 0))
    right = advise(log, simulate=False, randomised={0: share, 1: 1 - share})
    assert not any("do not occur with the shares" in note for note in right.notes)
    wrong = advise(log, simulate=False, randomised={0: share + 0.1, 1: 0.9 - share})
    assert any("do not occur with the shares given" in note for note in wrong.notes)
    with pytest.raises(InvalidParameterError, match="`randomised` must sum to 1"):
        advise(log, randomised={0: 0.5, 1: 0.4})
    with pytest.raises(InvalidParameterError, match="`randomised` must be about arms"):
        advise(log, randomised={"x": 1.0})
    with pytest.raises(TypeError, match="`randomised` must be True, False or a mapping"):
        advise(log, randomised="yes")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="whose propensities vary"):
        advise(log.with_propensity(rng.uniform(0.2, 0.8, 2000)), randomised=True)


@pytest.mark.slow
def test_a_file_and_memory_give_the_same(rng, tmp_path: Path) -> None:
    log, _ = confounded(rng, 1500)
    log.to_frame().to_parquet(tmp_path / "log.parquet")
    scan = LogScan(tmp_path / "log.parquet", arm="arm", reward="reward", context=log.context_names)
    one, other = robust(log), robust(scan)
    assert one.values.tolist() == other.values.tolist()
    assert one.covariance.tolist() == other.covariance.tolist()


def test_whole_clusters_under_one_arm_are_no_imbalance(rng) -> None:
    """Arms drawn per user: rows of a user share arm and context, and rows are no evidence."""
    user = np.repeat(np.arange(300), 10)
    x, arm = rng.normal(size=(300, 2))[user], rng.integers(2, size=300)[user]
    reward = (rng.random(3000) < 0.2) * 1.0
    by_row = checked(LoggedData.from_arrays(arm, reward, context=x))
    by_user = checked(LoggedData.from_arrays(arm, reward, context=x, cluster=user))
    assert by_user.rows == 300
    assert by_row.p_value <= by_user.p_value
    assert not by_user.fails  # probability of failing: 1 %


def test_standardised_differences_by_hand() -> None:
    x = np.array([[0.0, 5.0], [2.0, 5.0], [4.0, 5.0], [6.0, 6.0]])
    mean = np.array([[1.0, 5.0], [5.0, 5.5]])
    variance = np.array([[1.0, 0.0], [1.0, 0.25]])
    first, second = standardised_differences(np.array([2.0, 2.0]), mean, variance)
    assert first.column == 0
    assert first.size == pytest.approx(4.0)
    assert second.size == pytest.approx(0.5 / np.sqrt(0.125))
    from scipy.stats import f_oneway

    assert first.p_value == pytest.approx(f_oneway(x[:2, 0], x[2:, 0]).pvalue)


def test_the_statistic_is_that_of_the_analysis_of_variance(rng) -> None:
    """For two groups and centred columns: n·D², Hotelling's statistic with the total covariance."""
    x, group = rng.normal(size=(200, 3)), rng.integers(2, size=200)
    found = permutation_test(x, group, rng).statistic
    total = np.cov(x.T)
    apart = x[group == 1].mean(axis=0) - x[group == 0].mean(axis=0)
    n = np.bincount(group)
    wanted = n[0] * n[1] / n.sum() * apart @ np.linalg.solve(total, apart)
    assert found == pytest.approx(wanted)


def test_terms_leave_out_what_depends_on_others(rng) -> None:
    x = rng.normal(size=(500, 2))
    context = np.column_stack([x, x.sum(axis=1), np.ones(500), x[:, 0] > 0])
    terms = terms_of(context)
    assert terms.columns.tolist() == [0, 1, 4]
    assert independent(terms.of(context)).all()


# ----------------------------------------------------------------------------------- Monte Carlo


@pytest.mark.slow
def test_random_logs_are_flagged_at_most_at_the_stated_level() -> None:
    """200 logs, 2 to 12 arms, heavy-tailed and rare columns: more than 7 of them flagged has
    probability 1e-3 at a level of 1 %."""
    rng = np.random.default_rng(1)
    flagged = 0
    for _ in range(200):
        n = int(rng.integers(100, 800))
        x = np.column_stack([rng.lognormal(0, 2, n), rng.random(n) < 0.03, rng.normal(size=(n, 2))])
        arm = rng.integers(int(rng.integers(2, 13)), size=n)
        flagged += checked(LoggedData.from_arrays(arm, np.zeros(n), context=x)).fails
    assert flagged <= 7


@pytest.mark.slow
@pytest.mark.parametrize(("arms", "curved"), [(2, False), (3, True)])
def test_doubly_robust_differences_cover_and_raw_ones_do_not(arms, curved) -> None:
    """40 logs: fewer than 32 covered has probability 1e-3 if 93 % are in truth."""
    covered = raw = 0
    for seed in range(40):
        log, truth = confounded(
            np.random.default_rng(seed), 2000, arms=arms, strength=0.6, chance=0.2, curved=curved
        )
        found = robust(log)
        assert found.fails
        value, error = last_minus_first(found)
        covered += abs(value - truth) < 1.96 * error
        first, last = (log.reward[log.arm == k] for k in (0, arms - 1))
        spread = np.sqrt(first.var() / first.size + last.var() / last.size)
        raw += abs(last.mean() - first.mean() - truth) < 1.96 * spread
    assert covered >= 32
    assert raw <= 8


@pytest.mark.slow
def test_columns_of_long_logs_are_tested_on_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a sample of 300 of 6000 rows. 400 random logs: more than 11 flagged has probability 1e-3
    at a level of 1 %. A difference that a sample of 300 does not show is found in all rows."""
    monkeypatch.setattr("zib.logs.advise.balance.MOST_ROWS", 300)
    rng = np.random.default_rng(3)
    flagged = found = 0
    for i in range(400):
        heavy, rare = rng.lognormal(0, 1, 6000), rng.random(6000) < 0.01
        x = np.column_stack([heavy, rare, rng.normal(size=6000)])
        arm = rng.integers(3, size=6000)
        flagged += checked(LoggedData.from_arrays(arm, np.zeros(6000), context=x)).fails
        if i < 20:
            x[:, 2] += 0.2 * (arm == 1)
            found += checked(LoggedData.from_arrays(arm, np.zeros(6000), context=x)).fails
    assert flagged <= 11
    assert found == 20


@pytest.mark.slow
def test_loan_offers_of_all_risk_classes_are_no_plain_experiment() -> None:
    """Rates were drawn at random within risk classes and waves only."""
    from zib.datasets import load_karlan_zinman

    log = load_karlan_zinman(
        data_file(KARLAN_ZINMAN), risk=None, bins=None, drop_missing=True, verify=False
    )
    bare = LoggedData.from_arrays(
        [log.arms[k] for k in log.arm], log.reward, context=log.context,
        context_names=[name.replace("=", " ") for name in log.context_names], arms=log.arms,
    )  # fmt: skip
    found = robust(bare)
    assert found.fails
    assert found.comparable
    assert found.differences[0].column == "risk HIGH"
    # clients of other classes got rates that hardly any of class HIGH got
    assert 0.5 < found.kept < 0.95
