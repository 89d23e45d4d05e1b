"""Estimates, laws, tails and the context test, against SciPy, pandas and known laws."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from zib.logs import LogBatch, LoggedData
from zib.logs.advise import advise
from zib.logs.advise.collect import SALT, collect
from zib.logs.advise.context import context_report
from zib.logs.advise.estimates import overall, summaries, within_sd
from zib.logs.advise.law import fit_all, law_report
from zib.logs.advise.values import ValueCounts
from zib.stats.intervals import one_sided, skewed_mean
from zib.stats.sampling import row_hashes


def quiet(share: float) -> None:
    pass


def random_log(n: int = 20_000, seed: int = 1, *, context: bool = False) -> LoggedData:
    rng = np.random.default_rng(seed)
    arm = rng.integers(0, 4, n)
    paid = rng.random(n) < np.array([0.02, 0.05, 0.03, 0.2])[arm]
    reward = np.where(paid, rng.lognormal(np.array([1.0, 2.0, 0.5, 1.5])[arm], 0.8), 0.0)
    return LoggedData.from_arrays(
        arm,
        reward,
        propensity=rng.uniform(0.1, 0.9, n),
        context=rng.normal(size=(n, 2)) if context else None,
    )


class Recut:
    """A log that hands out the same rows in batches of other lengths."""

    def __init__(self, log: LoggedData, lengths: tuple[int, ...]) -> None:
        self._log, self._lengths = log, lengths
        self.arms, self.context_names = log.arms, log.context_names
        self.n_rows, self.has_propensity = log.n_rows, log.has_propensity

    def batches(self, size: int = 0) -> Iterator[LogBatch]:
        whole = next(self._log.batches(self.n_rows))
        start, i = 0, 0
        while start < self.n_rows:
            stop = start + self._lengths[i % len(self._lengths)]
            yield LogBatch(start, *(None if x is None else x[start:stop] for x in whole[1:]))
            start, i = stop, i + 1


# ------------------------------------------------------------------------------------ collecting


def test_counts_and_moments_are_those_of_a_group_by() -> None:
    log = random_log()
    found = collect(log, 0, quiet)
    frame = log.to_frame()
    paid = frame[frame["reward"] != 0].groupby("arm")["reward"]
    np.testing.assert_array_equal(found.rows, frame.groupby("arm").size())
    np.testing.assert_array_equal(found.paid.count, paid.size())
    np.testing.assert_allclose(found.paid.mean, paid.mean(), rtol=1e-12)
    np.testing.assert_allclose(found.paid.m2, paid.var(ddof=0) * paid.size(), rtol=1e-11)
    np.testing.assert_allclose(
        found.paid.m3 / found.paid.count, [stats.moment(g, 3) for _, g in paid], rtol=1e-10
    )
    np.testing.assert_allclose(
        found.paid.m4 / found.paid.count, [stats.moment(g, 4) for _, g in paid], rtol=1e-10
    )
    np.testing.assert_array_equal(found.top, np.sort(log.reward[log.reward != 0])[::-1][:5000])


def test_moments_merge_over_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    log = random_log()
    whole = collect(log, 0, quiet)
    monkeypatch.setattr("zib.logs.passes.BLOCK", 777)
    cut = collect(log, 0, quiet)
    for name in ("count", "mean", "m2", "m3", "m4"):
        expected = getattr(whole.paid, name)
        np.testing.assert_allclose(getattr(cut.paid, name), expected, rtol=1e-10)
    n, mean, m2, m3 = cut.paid.pooled()
    x = log.reward[log.reward != 0]
    np.testing.assert_allclose(
        [mean, m2 / n, m3 / n], [x.mean(), x.var(), stats.moment(x, 3)], rtol=1e-10
    )


@pytest.mark.parametrize("lengths", [(1_000,), (7, 20_000), (1, 300, 12_345)])
def test_nothing_depends_on_the_batches(
    lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zib.logs.advise.collect.MOST_VALUES", 500)
    monkeypatch.setattr("zib.logs.advise.collect.MOST_CONTEXT", 300)
    monkeypatch.setattr("zib.logs.advise.collect.MOST_TOP", 200)
    monkeypatch.setattr("zib.logs.passes.BLOCK", 4_096)
    log = random_log(context=True)
    one, other = collect(log, 3, quiet), collect(Recut(log, lengths), 3, quiet)
    for name in ("values", "value_arm", "arm_values", "arm_value_weight", "top", "context",
                 "context_reward", "rows"):  # fmt: skip
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ("count", "mean", "m2", "m3", "m4"):
        np.testing.assert_array_equal(getattr(one.paid, name), getattr(other.paid, name))
    for name, value in vars(one.weighted).items():
        np.testing.assert_array_equal(value, getattr(other.weighted, name))


def test_the_whole_advice_does_not_depend_on_the_batches() -> None:
    log = random_log(3_000)
    one = advise(log, simulate=False).to_dict()
    assert one == advise(Recut(log, (11, 500)), simulate=False).to_dict()


def test_samples_are_the_rows_with_the_smallest_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zib.logs.advise.collect.MOST_VALUES", 400)
    monkeypatch.setattr("zib.logs.passes.BLOCK", 1_000)
    log = random_log()
    found = collect(log, 5, quiet)
    key = row_hashes(5, SALT, 0, log.n_rows)
    paid = np.flatnonzero(log.reward)
    kept = paid[np.argsort(key[paid])]
    np.testing.assert_array_equal(found.values, log.reward[kept[:400]])
    for k in range(4):
        own = kept[log.arm[kept] == k][:100]
        np.testing.assert_array_equal(
            np.sort(found.arm_values[found.arm_value_arm == k]), np.sort(log.reward[own])
        )


# ------------------------------------------------------------------------------------- estimates


def test_estimates_are_those_of_a_group_by() -> None:
    log = random_log()
    arms = summaries(collect(log, 0, quiet), 0.95)
    frame = log.to_frame()
    for arm in arms:
        own = frame[frame["arm"] == arm.label]["reward"]
        paid = own[own != 0]
        assert arm.p.value == pytest.approx(len(paid) / len(own), rel=1e-12)
        assert arm.mu.value == pytest.approx(paid.mean(), rel=1e-12)
        assert arm.r.value == pytest.approx(own.mean(), rel=1e-12)
        assert arm.sd == pytest.approx(paid.std(ddof=1), rel=1e-10)
        exact = stats.binomtest(len(paid), len(own)).proportion_ci(0.95, method="exact")
        assert (arm.p.low, arm.p.high) == pytest.approx((exact.low, exact.high), rel=1e-9)
        assert arm.mu.low < arm.mu.value < arm.mu.high
        assert arm.r.low < arm.r.value < arm.r.high


def test_the_two_parts_of_the_variance_add_up_to_it() -> None:
    log = random_log()
    found = collect(log, 0, quiet)
    for arm in summaries(found, 0.95):
        own = log.reward[log.arm == arm.label]
        assert arm.variance == pytest.approx(np.var(own), rel=1e-12)
    whole = overall(found, 0.95)
    assert whole.variance == pytest.approx(np.var(log.reward), rel=1e-12)
    p, mu = np.mean(log.reward != 0), log.reward[log.reward != 0].mean()
    assert whole.occurrence_share == pytest.approx(p * (1 - p) * mu**2 / np.var(log.reward))


@pytest.mark.parametrize("law", ["gaussian", "log-normal"])
def test_the_interval_of_r_covers(law: str) -> None:
    # p = 4 %, 1 250 rows, 2 000 logs. A coverage of 95 % is missed by more than 2.5 points with
    # probability 3e-7 (binomial); a log-normal law with log sd 1 may lack up to 3 points more.
    rng = np.random.default_rng(8)
    n, p, logs = 1_250, 0.04, 2_000
    arm = np.repeat(np.arange(logs), n)
    reward = np.zeros(arm.size)
    paid = rng.random(arm.size) < p
    draw = (
        rng.normal(4.0, 1.0, paid.sum()) if law == "gaussian" else rng.lognormal(0, 1, paid.sum())
    )
    reward[paid] = draw
    truth = p * (4.0 if law == "gaussian" else np.exp(0.5))
    frame = pd.DataFrame({"arm": arm, "reward": reward})
    found = collect(LoggedData.from_frame(frame, arm="arm", reward="reward"), 0, quiet)
    inside = np.mean([arm.r.low <= truth <= arm.r.high for arm in summaries(found, 0.95)])
    assert 0.925 - (0.03 if law == "log-normal" else 0.0) < inside < 0.975


@pytest.mark.parametrize("sign", [1, -1])
def test_intervals_of_rewards_of_one_sign_keep_to_it(sign: int) -> None:
    rng = np.random.default_rng(0)
    arm = np.repeat(np.arange(40), 500)
    size = np.where(rng.random(arm.size) < 0.03, rng.lognormal(0.0, 2.5, arm.size), 0.0)
    propensity = rng.uniform(0.2, 0.9, arm.size)
    log = LoggedData.from_arrays(arm, sign * size, propensity=propensity)
    found = collect(log, 0, quiet)
    for arm_ in (*summaries(found, 0.95), overall(found, 0.95)):
        for part in (*arm_.compared[1:], arm_.mu, arm_.r):
            inner, outer = (part.low, part.high)[::sign]
            assert 0.0 < sign * inner < sign * part.value < sign * outer
    mixed = collect(LoggedData.from_arrays(arm, np.where(arm == 3, -size, size)), 0, quiet)
    assert min(arm_.r.low for arm_ in summaries(mixed, 0.95)) < 0.0


@pytest.mark.slow
def test_the_ends_that_keep_to_the_sign_are_missed_no_more_often_than_stated() -> None:
    # 20 000 samples each: a share of 2.5 % is exceeded by 0.5 points with probability 4e-6.
    rng = np.random.default_rng(1)
    for draw, mean in (
        (lambda size: rng.exponential(1.0, size), 1.0),
        (lambda size: rng.lognormal(0.0, 1.0, size), np.exp(0.5)),
        (lambda size: rng.lognormal(0.0, 2.0, size), np.exp(2.0)),
        (lambda size: 1.0 + rng.pareto(1.5, size), 3.0),
    ):
        for n in (10, 20, 50):
            plain = skewed_mean(draw((n, 20_000)))
            kept = one_sided(plain)
            assert (kept.low > 0.0).all()
            assert (kept.low >= plain.low).all()
            assert np.mean(kept.low > mean) < 0.03


def test_weighting_undoes_a_choice_that_depends_on_the_context() -> None:
    # Rich customers pay more and mostly see arm 1; both arms pay the same to the same customer.
    rng = np.random.default_rng(2)
    n = 60_000
    rich = rng.random(n) < 0.5
    chance = np.where(rich, 0.9, 0.1)
    arm = (rng.random(n) < chance).astype(int)
    propensity = np.where(arm == 1, chance, 1 - chance)
    paid = rng.random(n) < np.where(rich, 0.10, 0.04)
    reward = np.where(paid, rng.normal(np.where(rich, 12.0, 6.0), 1.0), 0.0)
    log = LoggedData.from_arrays(arm, reward, propensity=propensity)
    arms = summaries(collect(log, 0, quiet), 0.95)
    truth = 0.5 * (0.10 * 12.0 + 0.04 * 6.0)
    for k, one in enumerate(arms):
        assert not one.r.low < truth < one.r.high  # the plain average is far off
        assert one.weighted is not None
        rows = log.arm == k
        w = 1 / propensity[rows]
        assert one.weighted.r.value == pytest.approx(np.average(reward[rows], weights=w))
        # fails with probability 5 % per arm for another seed
        assert one.weighted.r.low < truth < one.weighted.r.high
        error = np.sqrt(np.sum((w * (reward[rows] - one.weighted.r.value)) ** 2)) / w.sum()
        width = one.weighted.r.high - one.weighted.r.low
        assert width == pytest.approx(2 * 1.96 * error, rel=0.02)


def test_spread_within_arms_ignores_differences_between_them() -> None:
    rng = np.random.default_rng(3)
    arm = rng.integers(0, 2, 4_000)
    log = LoggedData.from_arrays(arm, rng.normal(np.array([5.0, 50.0])[arm], 2.0))
    sd = within_sd(collect(log, 0, quiet), 0.95)
    own = [log.reward[arm == k] for k in range(2)]
    expected = np.sqrt(sum(((x - x.mean()) ** 2).sum() for x in own) / (4_000 - 2))
    assert sd.value == pytest.approx(expected, rel=1e-12)
    assert sd.low < 2.0 < sd.high  # fails with probability 5 % for another seed
    # chi-square interval for normal rewards
    chi = np.sqrt(3_998 / stats.chi2.ppf([0.975, 0.025], 3_998)) * expected
    np.testing.assert_allclose((sd.low, sd.high), chi, rtol=3e-3)


# ------------------------------------------------------------------------------------------ laws

LAWS = {
    "log-normal": stats.lognorm(1.1, scale=20.0),
    "gamma": stats.gamma(3.0, scale=2.0),
    "exponential": stats.expon(scale=5.0),
    "Weibull": stats.weibull_min(0.6, scale=2.0),
    "Gaussian": stats.norm(10.0, 2.0),
    "Pareto": stats.pareto(1.5, scale=3.0),
    "Lomax": stats.lomax(2.5, scale=3.0),
}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("unit", [1.0, 1e9, 1e-9])
def test_a_known_law_is_recognised(name: str, unit: float) -> None:
    x = unit * np.asarray(LAWS[name].rvs(3_000, random_state=4))
    fits = fit_all(x, positive=True)
    assert fits[0].name == name
    assert fits[0].distance < 1.63 / np.sqrt(3_000)  # 1 % limit of Kolmogorov and Smirnov
    likelihood = np.sum(fits[0].distribution().logpdf(x))
    assert fits[0].log_likelihood == pytest.approx(likelihood, rel=1e-9)
    assert fits[0].distance == pytest.approx(stats.kstest(x, fits[0].distribution().cdf).statistic)
    k = len(fits[0].parameters)
    assert fits[0].aic == pytest.approx(2 * k - 2 * likelihood, rel=1e-9)
    assert fits[0].bic == pytest.approx(np.log(3_000) * k - 2 * likelihood, rel=1e-9)
    squared = stats.cramervonmises(x, fits[0].distribution().cdf).statistic / 3_000
    assert fits[0].mean_distance == pytest.approx(np.sqrt(squared))


def test_fits_are_scipys_maximum_likelihood() -> None:
    x = np.asarray(LAWS["gamma"].rvs(500, random_state=1))
    by_name = {fit.name: fit for fit in fit_all(x, positive=True)}
    shape, _, scale = stats.gamma.fit(x, floc=0)
    assert list(by_name["gamma"].parameters.values()) == pytest.approx([shape, scale], rel=1e-4)
    assert by_name["exponential"].parameters["mean"] == pytest.approx(x.mean())
    assert by_name["log-normal"].parameters["log_sd"] == pytest.approx(np.log(x).std())
    assert by_name["Pareto"].parameters["smallest"] == pytest.approx(x.min())


def report(x: np.ndarray, zeros: int = 1_000) -> object:
    reward = np.concatenate([np.zeros(zeros), x])
    return law_report(collect(LoggedData.from_arrays([0] * reward.size, reward), 0, quiet), 0.95)


def test_signed_rewards_get_laws_on_the_whole_line() -> None:
    rng = np.random.default_rng(0)
    found = report(rng.standard_t(1.5, 5_000))
    assert found.best.name == "Student t"
    assert {fit.name for fit in found.fits} == {"Student t", "Gaussian", "Laplace"}
    assert found.tail.finite_variance == "no"
    assert report(rng.normal(0.0, 1.0, 2_000)).best.name == "Gaussian"
    losses = report(-rng.gamma(3.0, 2.0, 2_000))
    assert (losses.sign, losses.best.name) == (-1, "gamma")


def test_a_few_values_are_called_that() -> None:
    rng = np.random.default_rng(0)
    found = report(rng.choice([10.0, 25.0, 50.0], 900))
    assert found.points == 3
    assert "mostly on 3 values" in found.words
    assert report(rng.normal(5.0, 1.0, 900)).points == 0
    fixed = report(np.full(900, 7.0))
    assert fixed.constant == 7.0
    assert fixed.fits == ()


def priced(n: int, seed: int = 0) -> np.ndarray:
    """A quarter of the rewards is the smallest price, the others are bundles above it."""
    rng = np.random.default_rng(seed)
    more = np.round(29.99 + rng.gamma(2.0, 20.0, n), 2)
    return np.where(rng.random(n) < 0.25, 29.99, more)


def test_laws_are_ranked_by_what_the_picture_shows() -> None:
    x = priced(3_000)
    fits = fit_all(x, positive=True)
    by_name = {fit.name: fit for fit in fits}
    # the likelihood is largest for the law with a peak at the commonest value …
    assert min(fits, key=lambda fit: fit.bic).name == "Pareto"
    # … and its distribution function is twice as far off
    assert fits[0].name == "log-normal"
    assert by_name["Pareto"].distance > 1.5 * fits[0].distance
    distances = [fit.mean_distance for fit in fits]
    assert distances == sorted(distances)


def test_values_that_occur_again_and_again_are_named() -> None:
    x = priced(4_000)
    found = report(x)
    assert found.atoms[0] == (29.99, pytest.approx(np.mean(x == 29.99), rel=1e-12))
    assert found.atoms_exact
    assert "29.99 alone makes up 2" in found.words
    counts = np.unique(x, return_counts=True)[1]
    assert len(found.atoms) == np.sum(counts >= 0.02 * x.size)
    assert report(np.random.default_rng(0).gamma(2.0, 1.0, 4_000)).atoms == ()


def test_counts_of_values_do_not_depend_on_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    x = priced(6_000)
    expected = np.unique(x, return_counts=True)
    for room in (10, 10**6):
        monkeypatch.setattr("zib.logs.advise.values.ROOM", room)
        one, other = ValueCounts(), ValueCounts()
        for part in np.array_split(x[:2_500], 7):
            one.add(part)
        other.add(x[2_500:])
        one.merge(other)
        np.testing.assert_array_equal(one.found(), expected)
    # beyond what is kept, shares come from the sample
    monkeypatch.setattr("zib.logs.advise.values.MOST_DISTINCT", expected[0].size - 1)
    monkeypatch.setattr("zib.logs.advise.collect.MOST_VALUES", 2_000)
    found = report(x)
    assert not found.atoms_exact
    # four standard errors of a share of 25 % in a sample of 2 000: probability 6e-5
    assert found.atoms[0].share == pytest.approx(np.mean(x == 29.99), abs=0.04)
    assert "in a sample" in found.words


def test_a_reward_that_carries_an_arm_is_named() -> None:
    rng = np.random.default_rng(0)
    arm = rng.integers(0, 2, 4_000)
    reward = np.where(rng.random(4_000) < 0.05, rng.normal(10.0, 1.0, 4_000), 0.0)
    reward[arm == 1] *= 1.5
    calm = LoggedData.from_arrays(arm, reward)
    assert law_report(collect(calm, 0, quiet), 0.95).dominant == ()
    at = np.flatnonzero((arm == 0) & (reward != 0))[3]
    reward[at] = 5_000.0
    advice = advise(LoggedData.from_arrays(arm, reward), simulate=False)
    (found,) = advice.law.dominant
    own = reward[arm == 0]
    rest = np.delete(own, np.argmax(own))
    assert (found.arm, found.reward) == (0, 5_000.0)
    assert found.share == pytest.approx(5_000.0 / own.sum())
    assert found.r_without == pytest.approx(rest.mean())
    assert found.mu_without == pytest.approx(rest[rest != 0].mean())
    (sentence,) = [note for note in advice.notes if note.startswith("One reward of 5000")]
    assert "arm 1 would lead" in sentence


def test_arms_that_always_pay_the_same_have_no_law() -> None:
    rng = np.random.default_rng(0)
    arm = rng.integers(0, 2, 3_000)
    paid = rng.random(3_000) < 0.1
    log = LoggedData.from_arrays(arm, np.where(paid, np.array([19.99, 29.99])[arm], 0.0))
    found = law_report(collect(log, 0, quiet), 0.95)
    assert found.fits == ()
    assert "always pays the same" in found.words
    assert {atom.value for atom in found.atoms} == {19.99, 29.99}


def test_arms_of_different_size_are_brought_to_one_scale() -> None:
    rng = np.random.default_rng(0)
    arm = rng.integers(0, 3, 6_000)
    log = LoggedData.from_arrays(arm, rng.gamma(5.0, np.array([1.0, 30.0, 900.0])[arm]))
    found = law_report(collect(log, 0, quiet), 0.95)
    assert (found.adjusted, found.best.name) == ("scaled", "gamma")
    assert found.best.parameters["shape"] == pytest.approx(5.0, rel=0.1)


# ------------------------------------------------------------------------------------------ tails


@pytest.mark.parametrize("seed", range(5))
def test_the_tail_index_of_a_pareto_law_is_covered(seed: int) -> None:
    # the interval is wider than 95 % over its plateau: each seed fails with at most 5 %
    x = np.asarray(stats.pareto(1.5).rvs(8_000, random_state=seed))
    tail = report(x).tail
    assert tail.index.low < 1.5 < tail.index.high
    assert tail.finite_variance == "no"
    assert 1.0 + tail.epsilon < 1.5
    logs = np.log(np.sort(x)[::-1])
    assert tail.index.value == pytest.approx(1 / (logs[: tail.k].mean() - logs[tail.k]), rel=1e-9)
    assert tail.moment.value == pytest.approx(np.mean(x ** (1 + tail.epsilon)), rel=1e-9)


@pytest.mark.parametrize("name", ["Gaussian", "gamma", "exponential"])
@pytest.mark.parametrize("n", [2_000, 20_000])
def test_light_tails_have_a_finite_variance(name: str, n: int) -> None:
    tail = report(np.asarray(LAWS[name].rvs(n, random_state=3))).tail
    assert tail.finite_variance == "yes"
    assert tail.epsilon == 1.0


def test_an_infinite_variance_is_not_claimed_of_a_log_normal_law() -> None:
    for seed in range(5):
        x = np.asarray(stats.lognorm(2.0).rvs(5_000, random_state=seed))
        assert report(x).tail.finite_variance != "no"


def test_few_or_capped_rewards() -> None:
    rng = np.random.default_rng(0)
    few = report(rng.exponential(1.0, 60)).tail
    assert few.finite_variance == "cannot tell"
    assert "at least 100" in few.words
    capped = report(np.minimum(rng.pareto(1.2, 3_000) + 1.0, 5.0)).tail
    assert capped.finite_variance == "yes"
    assert "capped" in capped.words


def test_moments_of_long_logs_count_the_largest_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zib.logs.advise.collect.MOST_VALUES", 3_000)
    monkeypatch.setattr("zib.logs.advise.collect.MOST_TOP", 1_000)
    x = np.asarray(stats.pareto(1.5).rvs(40_000, random_state=0))
    tail = report(x).tail
    # what is left to sampling is a third of the moment, with a spread of 1 %
    assert tail.moment.value == pytest.approx(np.mean(x ** (1 + tail.epsilon)), rel=0.05)


# ---------------------------------------------------------------------------------------- context


def contextual_log(effect: float, magnitude: float, seed: int) -> LoggedData:
    rng = np.random.default_rng(seed)
    n = 6_000
    x = rng.normal(size=(n, 2))
    arm = rng.integers(0, 3, n)
    eta = -1.5 + 0.4 * x[:, 0] + effect * np.array([-1, 0, 1])[arm] * x[:, 1]
    paid = rng.random(n) < 1 / (1 + np.exp(-eta))
    size = np.exp(1.0 + magnitude * np.array([-1, 0, 1])[arm] * x[:, 0] + 0.5 * rng.normal(size=n))
    return LoggedData.from_arrays(arm, np.where(paid, size, 0.0), context=x)


def test_context_by_arm_is_found_in_either_part() -> None:
    for effect, magnitude, part in ((0.5, 0.0, "occurrence"), (0.0, 0.3, "magnitude")):
        found = context_report(collect(contextual_log(effect, magnitude, 0), 0, quiet))
        assert found is not None
        assert found.matters
        values = {test.part: test.p_value for test in found.tests}
        assert values[part] < 1e-6


def test_context_tests_agree_with_statsmodels() -> None:
    api = pytest.importorskip("statsmodels.api")
    log = contextual_log(0.1, 0.05, 1)
    found = context_report(collect(log, 0, quiet))
    assert found is not None
    frame = log.to_frame()
    dummies = pd.get_dummies(frame["arm"]).to_numpy(dtype=float)
    x = frame[["x0", "x1"]].to_numpy()
    own = np.hstack([dummies, *(dummies[:, [k]] * x for k in range(3))])
    common = np.hstack([dummies, x])
    paid = frame["reward"].to_numpy() != 0
    full = api.Logit(paid, own).fit(disp=0).llf
    less = api.Logit(paid, common).fit(disp=0).llf
    by_part = {test.part: test for test in found.tests}
    assert by_part["occurrence"].freedom == 4
    assert by_part["occurrence"].statistic == pytest.approx(2 * (full - less), rel=1e-4)
    logs = np.log(frame["reward"].to_numpy()[paid])
    test = api.OLS(logs, own[paid]).fit().compare_f_test(api.OLS(logs, common[paid]).fit())
    assert by_part["magnitude"].statistic == pytest.approx(test[0], rel=1e-6)
    assert by_part["magnitude"].p_value == pytest.approx(test[1], rel=1e-6)


def test_context_that_moves_all_arms_alike_is_rarely_called_important() -> None:
    # 40 logs at 1 %: five or more false alarms have probability 6e-5
    alarms = sum(
        context_report(collect(contextual_log(0.0, 0.0, seed), 0, quiet)).matters
        for seed in range(40)
    )
    assert alarms < 5
