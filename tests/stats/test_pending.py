"""Decisions in flight, kept as counts, against the decisions themselves and the exact posterior."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from zib.core.validate import InvalidParameterError
from zib.stats.delay import DelayCounts, DelayDistribution, delay_bins, pending_posterior
from zib.stats.intervals import share
from zib.stats.pending import BUCKETS, CLOSED, MOST_BUCKETS, PendingDecisions

slow = pytest.mark.slow
H = 7.0
LAWS = {
    "exponential": stats.truncexpon(b=3.5, scale=2.0),
    "uniform": stats.uniform(0.0, H),
    "heavy": stats.lognorm(s=1.5, scale=0.5),
    "late": stats.beta(5.0, 2.0, scale=H),
}


def seen_at(now, at, arm, delay, amount):
    """Return what has been seen of decisions by a time, as columns for `from_counts`."""
    made = at <= now
    bucket = (at // (H / BUCKETS)).astype(int)
    paid = made & (delay <= H) & (at + delay <= now)
    edges = delay_bins(H)
    bins = np.maximum(np.searchsorted(edges, delay[paid], side="left") - 1, 0)
    one = np.ones(int(paid.sum()))
    y = amount[paid]
    waits = made & ~paid
    return {
        "waiting": (arm[waits], bucket[waits], np.ones(int(waits.sum()))),
        "rewarded": (arm[paid], bucket[paid], bins, one, y, y * y),
    }


def world(rng, n, chance, law, *, days=14.0, amounts=None):
    """Return decisions and what comes of them: no reward is a delay without end."""
    chance = np.atleast_1d(chance)
    arm, at = rng.integers(chance.size, size=n), days * rng.random(n)
    delay = law.rvs(n, random_state=rng)
    delay[rng.random(n) >= chance[arm]] = np.inf
    amount = np.ones(n) if amounts is None else amounts(rng, arm, np.minimum(delay, H))
    return at, arm, delay, amount


def assumed(law) -> DelayDistribution:
    edges = delay_bins(H)
    return DelayDistribution(edges, law.cdf(edges) / law.cdf(H))


def test_counts_by_bucket_say_what_single_decisions_say(rng):
    law, now = LAWS["exponential"], 9.37
    at, arm, delay, amount = world(rng, 4_000, [0.02, 0.2], law)
    columns = seen_at(now, at, arm, delay, amount)
    pending = PendingDecisions.from_counts(H, ["a", "b"], **columns)
    found = pending.estimate(now, delay=assumed(law), by_delay=False)
    for k in range(2):
        mine = (arm == k) & (at <= now)
        paid = mine & (at + delay <= now)
        age = now - at[mine & ~paid]
        wanted = pending_posterior(
            paid.sum(), (age >= H).sum(), assumed(law)(age[age < H]), counts=None
        )
        assert found.events[k] == paid.sum()
        assert found.waiting[k] + found.closed[k] == age.size
        assert abs(found.waiting[k] - (age < H).sum()) <= 3  # those of one bucket
        assert found.zeros[k] == pytest.approx(wanted.beta - 1.0, rel=1e-3)
        assert found.chance[k] == pytest.approx(wanted.mean, rel=1e-3)


def test_one_by_one_and_in_pieces_is_the_same(rng):
    at, arm, delay, amount = world(rng, 800, [0.3, 0.5], LAWS["uniform"], days=10.0)
    labels, now = ["a", "b"], 10.0
    wanted = PendingDecisions.from_counts(H, labels, **seen_at(now, at, arm, delay, amount))
    pieces = [PendingDecisions(H, order) for order in (["a", "b"], ["b"], ["b", "a"])]
    pieces[1].add_arm("a")
    for i in rng.permutation(800):
        piece = pieces[i % 3]
        piece.decide(labels[arm[i]], at[i])
        if at[i] + delay[i] <= now and delay[i] <= H:
            piece.reward(labels[arm[i]], at[i], delay[i], amount[i])
    pieces[0].decide("a", 3.0, n=5)
    pieces[0].cancel("a", 3.0, n=5)
    for piece in pieces[1:]:
        pieces[0].merge(piece)
    one, two = wanted.estimate(now), pieces[0].estimate(now)
    for a, b in zip(one, two, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_allclose(a, b, rtol=1e-12)
    np.testing.assert_array_equal(one.delays[0].values, two.delays[0].values)
    assert repr(wanted) == repr(pieces[0])


def test_delays_of_buckets_are_those_of_the_single_decisions(rng):
    """A bucket is as old as its youngest decision, so a few bins are complete a little later."""
    at, arm, delay, amount = world(rng, 20_000, [0.3], LAWS["exponential"])
    now = 10.0
    pending = PendingDecisions.from_counts(H, ["a"], **seen_at(now, at, arm, delay, amount))
    (found,) = pending.delay_counts(now)
    paid = (at + delay <= now) & (delay <= H)
    wanted = DelayCounts(delay_bins(H))
    wanted.add(delay[paid], now - at[paid])
    assert 0.98 * wanted.events < found.events <= wanted.events
    apart = np.abs(found.distribution().values - wanted.distribution().values)
    assert apart.max() < 0.005


def test_a_clock_that_jumps_breaks_nothing():
    pending = PendingDecisions(H, ["a"])
    for at in (0.0, 5.0, 9.0):
        pending.decide("a", at, n=100)
    pending.decide("a", 1e12)  # once, the clock was wrong
    pending.reward("a", 5.0, 1.0, 3.0)
    found = pending.estimate(10.0)
    assert (found.closed, found.waiting, found.events) == (100.0, 200.0, 1.0)
    back = pending.estimate(4.0)  # the one at 5 has come, nothing else has begun but the first
    assert (back.closed, back.waiting) == (0.0, 300.0)
    assert 0.0 <= back.weighted[0] <= 100.0
    assert pending.estimate(-5.0).weighted == 0.0
    later = pending.estimate(5e12)
    assert (later.closed, later.waiting) == (300.0, 0.0)
    again = pending.estimate(10.0)
    assert (again.closed, again.weighted) == (found.closed, found.weighted)


def test_memory_does_not_grow_with_decisions():
    pending = PendingDecisions(1.0, ["a", "b"])
    for at in np.arange(0.0, 6.0, 1 / 3_000):
        pending.decide("a", at, n=1_000)
        pending.decide("b", at, n=100)
    found = pending.estimate(6.0)
    keys, _ = pending._waiting.rows()
    assert len(keys) <= 2 * MOST_BUCKETS
    assert found.closed[0] == pytest.approx(15_000_000, rel=1e-3)
    assert found.waiting[0] == pytest.approx(3_000_000, rel=1e-3)
    before = keys[keys[:, 1] == CLOSED].shape[0]
    assert before == 2  # one row per arm for all that is long over
    pending.reward("a", 0.1, None, 5.0)  # of a decision that is in there
    after = pending.estimate(6.0)
    assert (after.events[0], after.closed[0]) == (1.0, found.closed[0] - 1.0)


def test_an_amount_of_zero_closes_a_decision():
    pending = PendingDecisions(H, ["a"])
    pending.decide("a", 1.0, n=10)
    pending.reward("a", 1.0, 0.5, 0.0)
    found = pending.estimate(1.0)
    assert (found.events, found.closed, found.waiting) == (0.0, 1.0, 9.0)
    pending.reward("a", 1.0, 0.5, 20.0)
    pending.revise("a", 1.0, 0.5, 20.0, 30.0)
    (row,) = pending._rewarded.rows()[1]
    assert row.tolist() == [1.0, 30.0, 900.0]
    pending.revise("a", 1.0, 0.5, 30.0, 0.0)  # a refund
    found = pending.estimate(1.0)
    assert (found.events, found.closed, found.waiting) == (0.0, 2.0, 8.0)
    assert found.delays[0].events == 0.0


def test_rewards_after_the_horizon_count_and_leave_the_delays_alone():
    pending = PendingDecisions(H, ["a"])
    pending.decide("a", 1.0, n=10)
    pending.reward("a", 1.0, 2.0 * H, 5.0)
    pending.reward("a", 1.0, None, 5.0)
    found = pending.estimate(30.0)
    assert (found.events, found.closed, found.delays[0].events) == (2.0, 8.0, 0.0)


def test_arms_with_delays_of_their_own_are_found_and_told_apart(rng):
    labels, now = ["fast", "slow", "new"], 12.0
    parts = []
    for k, (law, n) in enumerate(
        ((stats.beta(1, 4, scale=H), 9_000), (LAWS["late"], 9_000), (LAWS["late"], 60))
    ):
        at, arm, delay, amount = world(rng, n, [0.2], law, days=12.0)
        piece = PendingDecisions.from_counts(
            H, labels[k : k + 1], **seen_at(now, at, arm, delay, amount)
        )
        parts.append(piece)
    for piece in parts[1:]:
        parts[0].merge(piece)
    found = parts[0].estimate(now)
    assert found.split
    assert found.delays_p < 1e-6
    at = np.linspace(0.0, H, 100)
    assert np.abs(found.delays[0](at) - stats.beta(1, 4, scale=H).cdf(at)).max() < 0.1
    assert np.abs(found.delays[1](at) - LAWS["late"].cdf(at)).max() < 0.1
    pooled = parts[0].estimate(now, by_arm=False)
    assert pooled.delays_p == 1.0
    np.testing.assert_allclose(found.delays[2](at), pooled.delays[2](at), atol=0.25)  # few rewards
    # with the delays of all, the fast arm seems to pay more often and the slow one less
    assert pooled.chance[0] > 1.05 * found.chance[0]
    assert pooled.chance[1] < 0.95 * found.chance[1]
    assert found.chance[:2] == pytest.approx([0.2, 0.2], rel=0.15)  # 3.5 standard errors


def test_the_mean_over_a_bucket_is_the_integral(rng):
    law = DelayDistribution([0.0, 0.5, 1.0, 4.0, H], [0.0, 0.3, 0.3, 0.9, 1.0])
    low = rng.uniform(0.0, 8.0, 50)
    high = low + rng.uniform(0.0, 3.0, 50)
    fine = np.linspace(low, high, 20_001)
    np.testing.assert_allclose(law.average(low, high), law(fine).mean(axis=0), atol=1e-4)
    np.testing.assert_allclose(law.average(low, low + 1e-12), law(low), atol=1e-9)


# ------------------------------------------------------------------------------ numbers to be held

AGES = {  # of decisions, in horizons, from random numbers in [0, 1]
    "a run of one and a half horizons": lambda u: 1.5 * u,
    "traffic that grows": lambda u: 1.5 * u**2,
    "a new arm": lambda u: 0.3 * u,
}


def exact_posterior_mean(events, zeros, f) -> float:
    """Return the posterior mean under a uniform prior: the likelihood of every single decision."""
    near = (events + 1) / (events + zeros + f.sum() + 2)
    p = np.linspace(0.0, min(1.0, near * (1.0 + 9.0 / np.sqrt(events + 1))), 3_001)[1:-1]
    log = events * np.log(p) + zeros * np.log1p(-p)
    log += sum(np.log1p(-np.outer(p, part)).sum(axis=1) for part in np.array_split(f, 20))
    weight = np.exp(log - log.max())
    return float((weight * p).sum() / weight.sum())


@slow
@pytest.mark.parametrize("ages", AGES)
@pytest.mark.parametrize("name", LAWS)
def test_the_mean_is_that_of_the_exact_likelihood(name, ages, rng):
    """Within 0.5 %, buckets and all, with F known, in 44 of these 48 cases: 0.26 % at most over
    three runs of each, and less than 0.1 % in 95 %. The other four are a new arm whose rewards
    come late, where F is at most 0.011 and 0 to 3 rewards have come: 4 to 15 % too low there, while
    the posterior is as wide as its mean. Those limits were set after seeing that; no case had 4 to
    6 rewards."""
    law = LAWS[name]
    for p, n in ((0.005, 12_000), (0.02, 8_000), (0.1, 4_000), (0.3, 3_000)):
        age = H * AGES[ages](rng.random(n))
        now = 1.5 * H
        at, delay = now - age, law.rvs(n, random_state=rng)
        delay[rng.random(n) >= p] = np.inf
        columns = seen_at(now, at, np.zeros(n, dtype=int), delay, np.ones(n))
        found = PendingDecisions.from_counts(H, ["a"], **columns).estimate(now, delay=assumed(law))
        paid = (delay <= H) & (delay <= age)
        open_ages = age[~paid & (age < H)]
        zeros = (~paid & (age >= H)).sum()
        wanted = exact_posterior_mean(paid.sum(), zeros, assumed(law)(open_ages))
        hardly_any = paid.sum() < 5
        assert found.chance[0] == pytest.approx(wanted, rel=0.2 if hardly_any else 0.005)


@slow
@pytest.mark.parametrize("name", LAWS)
def test_f_is_near_the_truth_in_the_middle_of_a_run(name, seed):
    """2,000 rewards after one and a half horizons: F is off by 0.018 to 0.021 on average over
    runs, at its largest difference, and by at most 0.03 in 89 to 96 % of runs. Without any
    truncation 2,000 delays are within 0.03 in 94.5 % (Kolmogorov). Of 200 runs at least 160 and a
    mean below 0.023 are found except with probability 1e-4."""
    law, rng = LAWS[name], np.random.default_rng(seed)
    at = np.linspace(0.0, H, 400)
    truth, apart = law.cdf(at) / law.cdf(H), []
    for _ in range(200):
        n = 30_000
        made, arm, delay, amount = world(rng, n, [0.2, 0.4], law, days=1.5 * H)
        columns = seen_at(1.5 * H, made, arm, delay, amount)
        kept = rng.permutation(columns["rewarded"][0].size)[:2_000]
        columns["rewarded"] = tuple(column[kept] for column in columns["rewarded"])
        found = PendingDecisions.from_counts(H, ["a", "b"], **columns)
        apart.append(np.abs(found.estimate(1.5 * H, by_arm=False).delays[0](at) - truth).max())
    assert np.mean(apart) < 0.023
    assert (np.array(apart) <= 0.03).sum() >= 160


@slow
@pytest.mark.parametrize(("name", "p"), [("exponential", 0.02), ("uniform", 0.1), ("late", 0.3)])
def test_intervals_of_p_hold_while_decisions_are_in_flight(name, p, seed):
    """95 % intervals of p from fractional zeros, F estimated: of 600 at least 545 hold, except
    with probability 1e-5 if each does with 95 %. Those from closed decisions alone miss."""
    law, rng, held, naive = LAWS[name], np.random.default_rng(seed), 0, 0
    now = 1.5 * H
    for _ in range(200):
        columns = seen_at(now, *world(rng, round(900 / p), [p] * 3, law, days=now))
        found = PendingDecisions.from_counts(H, ["a", "b", "c"], **columns).estimate(now)
        truth = p * law.cdf(H)
        holds = [
            int(((each.low <= truth) & (truth <= each.high)).sum())
            for each in (share(found.events, found.events + x) for x in (found.zeros, found.closed))
        ]
        held, naive = held + holds[0], naive + holds[1]
    assert held >= 545
    assert naive < 30


# ------------------------------------------------------------------------------------------ amounts


def larger_later(rng, arm, delay):
    return (1.0 + arm) * (1.0 + 2.0 * delay / H) * rng.gamma(4.0, 0.25, delay.size)


def test_amounts_that_grow_with_the_delay_are_corrected(rng):
    """What has come so far averages 1.79, not 2. The mean of 20 runs has a standard error of 0.01,
    so chance has no part in it."""
    law, now = LAWS["uniform"], 1.3 * H
    truth = 2.0  # the mean of 1 + 2u
    plain, right, inverse = [], [], []
    for _ in range(20):
        at, arm, delay, amount = world(rng, 15_000, [0.1, 0.1], law, days=now, amounts=larger_later)
        columns = seen_at(now, at, arm, delay, amount)
        found = PendingDecisions.from_counts(H, ["a", "b"], **columns).estimate(
            now, delay=assumed(law)
        )
        assert found.amounts_p < 0.01
        paid = (delay <= H) & (at + delay <= now)
        scaled = amount[paid] / (1.0 + arm[paid])
        plain.append(scaled.mean())
        right.append(
            np.mean([f * scaled[arm[paid] == k].mean() for k, f in enumerate(found.factors)])
        )
        weight = 1.0 / assumed(law)(now - at[paid])
        inverse.append((weight * scaled).sum() / weight.sum())
    assert np.mean(plain) == pytest.approx(1.79, abs=0.05)
    assert np.mean(right) == pytest.approx(truth, abs=0.06)
    assert np.mean(inverse) < np.mean(plain)  # 1/F(age) is no correction: it makes things worse


@slow
def test_equal_amounts_are_called_dependent_as_often_as_stated(seed):
    """Of 400 tests at 5 % between 7 and 35 reject, except with probability 0.002."""
    rng, rejected = np.random.default_rng(seed), 0
    for _ in range(400):
        at, arm, delay, amount = world(
            rng, 4_000, [0.1, 0.2], LAWS["heavy"],
            amounts=lambda rng, arm, delay: (1 + arm) * rng.gamma(1.0, 1.0, delay.size),
        )  # fmt: skip
        columns = seen_at(9.0, at, arm, delay, amount)
        found = PendingDecisions.from_counts(H, ["a", "b"], **columns).estimate(9.0)
        rejected += found.amounts_p < 0.05
    assert 7 <= rejected <= 35


# ---------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: PendingDecisions(0.0, ["a"]), r"`horizon` must lie in \(0, inf\)"),
        (lambda p: PendingDecisions(1.0, []), "`arms` must hold at least one"),
        (lambda p: p.decide("z", 1.0), "`arm` must be one of"),
        (lambda p: p.decide("a", -1.0), r"`at` must lie in \[0, "),
        (lambda p: p.decide("a", 1.0, n=0), "`n` must lie in"),
        (lambda p: p.reward("a", 2.0, 1.0, 1.0), "`at` must be the time of a decision"),
        (lambda p: p.reward("a", 1.0, -1.0, 1.0), r"`delay` must lie in \[0, inf"),
        (lambda p: p.reward("a", 1.0, 1.0, np.nan), "`amount` must be a finite number"),
        (lambda p: p.cancel("a", 1.0, n=4), "`at` must be the time .* around which 3 do"),
        (lambda p: p.revise("a", 1.0, 0.5, 2.0, 1.0), "`old` must be a reward of 'a'"),
        (lambda p: p.add_arm("a"), "`arm` must be new"),
        (lambda p: p.merge(PendingDecisions(2.0, ["a"])), "with the horizon 7"),
        (lambda p: p.estimate(np.inf), "`now` must be a finite number"),
        (lambda p: p.estimate(1.0, by_arm="yes"), "`by_arm` must be True, False or 'auto'"),
        (lambda p: p.estimate(1.0, delay=3), "`delay` must be a DelayDistribution"),
        (
            lambda p: p.estimate(1.0, delay=DelayDistribution([0.0, 9.0], [0.0, 1.0])),
            "`delay` must reach 1 by the horizon, 7",
        ),
        (lambda p: p.estimate(1.0, prior_events=0.0), "`prior_events` must lie in"),
        (lambda p: p.bin_of(8.0), r"`delay` must lie in \[0, 7\]"),
        (
            lambda p: PendingDecisions.from_counts(1.0, ["a"], waiting=([0], [1])),
            "`waiting` must be 3 columns",
        ),
        (
            lambda p: PendingDecisions.from_counts(1.0, ["a"], waiting=([1], [1], [1])),
            "`waiting` must begin with the number of an arm",
        ),
        (
            lambda p: PendingDecisions.from_counts(
                1.0, ["a"], rewarded=([0], [1], [100], [1], [1], [1])
            ),
            "`rewarded` must begin with",
        ),
        (lambda p: DelayDistribution([0, 1], [0, 1]).average([1.0], [0.5]), "`high` must have"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused_and_change_nothing(call, message):
    pending = PendingDecisions(H, ["a"])
    pending.decide("a", 1.0, n=3)
    with pytest.raises(InvalidParameterError, match=message):
        call(pending)
    found = pending.estimate(2.0)
    assert (found.waiting, found.events, found.closed) == (3.0, 0.0, 0.0)
