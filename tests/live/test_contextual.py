"""Contextual bandits in a ledger: what is learned when, and that it is right at any time."""

from __future__ import annotations

import time

import numpy as np
import pytest
from scipy import integrate

import zib
from tests.live.scene import Clock
from zib.contextual import Adaptive, ByCategory, LaplaceTS
from zib.core.entry import interpreted
from zib.core.validate import InvalidParameterError
from zib.live import Ledger
from zib.live.answers import LedgerError
from zib.live.book import Book
from zib.live.learning import Learning, zero_share
from zib.live.model import Versioned
from zib.live.replay import replay
from zib.stats.delay import pending_weight

DAY = 86_400.0
POLICY = LaplaceTS(memory=256)
POLICIES = {
    "LaplaceTS": POLICY,
    "Adaptive": Adaptive(n_arms=1, memory=256),
    "Adaptive ts": Adaptive(n_arms=1, kind="ts", memory=256),
}


@pytest.fixture(autouse=True)
def _interpreted():
    """Nothing is compiled: what is tested here is not how fast policies are."""
    with interpreted():
        yield


@pytest.fixture
def clock():
    return Clock(1_000_000.0)


def opened(database, clock, **given):
    settings = {"arms": ["a", "b"], "policy": POLICY, "window": "7d", "draws": 100, "features": 2}
    return Ledger(database, clock=clock, background=False, **{**settings, **given})


@pytest.fixture(params=POLICIES)
def policy(request):
    """A policy whose models are of each arm by itself, and one that learns from all arms."""
    return POLICIES[request.param]


def learned(ledger):
    """Return how many decisions the model has learned, and how many as rewards."""
    tally = ledger._book.model.bandit._tally
    return int(tally.pulls.sum()), int(tally.nonzero.sum())


# -------------------------------------------------------------------------------------- when zeros


@pytest.mark.parametrize("p", [0.001, 0.05, 0.3])
@pytest.mark.parametrize("since", [0.0, 0.4])
def test_zeros_grow_as_rewards_do(p, since):
    """The share of decisions that are learned as zeros is (1 − p)F at any age: by quadrature."""
    for fraction in (0.5, 0.9, 1.0):

        def rate(f):
            """The rate at which those are learned that wait, per unit of F."""
            step = 1e-6
            ends = zero_share(np.array([f - step, f + step]), p, np.array([since] * 2))
            waiting = (1.0 - since) * (1.0 - p * f) / (1.0 - p * since)
            return (ends[1] - ends[0]) / (2 * step) * waiting

        grown, _ = integrate.quad(rate, since, fraction)
        assert grown == pytest.approx((1 - p) * (fraction - since), rel=1e-6)
    assert zero_share(np.array([since]), p, np.array([since]))[0] == 0.0


@pytest.mark.parametrize("anew_at", [None, 0.3])
def test_what_is_learned_is_a_sample_of_the_closed_decisions(anew_at):
    """At any age a share F of rewards and of zeros; each comparison fails with probability 1e-6."""
    rng = np.random.default_rng(5)
    n, p = 400_000, 0.2
    paid = rng.random(n) < p
    delay = np.where(paid, rng.random(n), np.inf)  # in units of F
    u = rng.random(n)
    zero_at = np.full(n, np.inf)  # F at which it is learned as a zero
    start, waits = 0.0, np.ones(n, dtype=bool)
    if anew_at is not None:
        weight = float(pending_weight(anew_at, p))
        unpaid = delay > anew_at
        waits = unpaid & (u >= weight)
        zero_at[unpaid & (u < weight)] = anew_at
        u = np.where(waits, (u - weight) / (1 - weight), 1.0)
        start = anew_at
    grid = np.linspace(start, 1.0, 4_001)
    share = zero_share(grid, p, np.full(grid.size, start))
    at = np.interp(u, share, grid, right=np.inf)
    zero_at = np.where(waits & (at < delay), at, zero_at)
    for fraction in (0.35, 0.6, 1.0):
        rewards, zeros = (delay <= fraction).sum(), (zero_at <= fraction).sum()
        for found, expected in ((rewards, p * fraction), (zeros, (1 - p) * fraction)):
            assert abs(found - n * expected) < 4.9 * np.sqrt(n * expected)


def logistic_fit(x, rewarded):
    """Return intercept and slope of the log odds, by Newton's method."""
    z, beta = np.column_stack([np.ones(x.size), x]), np.zeros(2)
    for _ in range(12):
        p = 1 / (1 + np.exp(-z @ beta))
        beta = beta + np.linalg.solve((z.T * (p * (1 - p))) @ z, z.T @ (rewarded - p))
    return beta


def test_a_fit_to_what_is_learned_is_that_to_what_will_have_happened():
    """Chances from 2 to 20 % by context, decisions of all ages; only the mean chance is known.

    Standard errors are 0.02; five of them, and what the mean chance does not know (`zero_share`),
    are 0.15. Counting what waits as zeros, or leaving it out, is off by more than 0.4.
    """
    rng = np.random.default_rng(9)
    n = 150_000
    x = rng.uniform(-1.0, 1.0, n)
    p = 1 / (1 + np.exp(-(-2.6 + 1.2 * x)))
    paid = rng.random(n) < p
    delay, age, u = rng.random(n), rng.random(n), rng.random(n)  # in units of F
    seen = paid & (delay <= age)
    mean = np.full(n, p.mean())
    zero_by = zero_share(np.minimum(age, np.where(paid, delay, 1.0)), mean, np.zeros(n))
    is_zero = u < zero_by
    fitted = logistic_fit(np.concatenate([x[seen], x[is_zero]]),
                          np.repeat([1.0, 0.0], [seen.sum(), is_zero.sum()]))  # fmt: skip
    undelayed = logistic_fit(x, paid.astype(float))
    np.testing.assert_allclose(fitted, undelayed, atol=0.15)
    np.testing.assert_allclose(undelayed, [-2.6, 1.2], atol=0.1)
    pending_as_zero = logistic_fit(x, seen.astype(float))
    assert abs(pending_as_zero[0] - undelayed[0]) > 0.4


# ----------------------------------------------------------------------------------- in a ledger


def play(ledger, clock, rng, n, *, p=0.3, days=0.05):
    for _ in range(n):
        clock.now += days * DAY
        x = [1.0, rng.normal()]
        decision = ledger.decide(f"k{clock.now}", context=x)
        if rng.random() < p:
            delay = rng.exponential(1.5) * DAY
            ledger._coming.append((clock.now + delay, decision.id))
        for due in [e for e in ledger._coming if e[0] <= clock.now]:
            ledger._coming.remove(due)
            ledger.event(f"e{due[1]}", due[1], 2.0, at=due[0])


def test_rewards_are_learned_at_once_and_zeros_as_they_would_have_come(database, clock):
    rng = np.random.default_rng(2)
    with opened(database, clock) as ledger:
        ledger._coming = []
        for _ in range(4):
            play(ledger, clock, rng, 25, days=0.1)
            ledger._keeper.refresh(force=False)
        pulls, rewards = learned(ledger)
        assert rewards >= 15
        assert 50 < pulls < 100  # the youngest are open
        clock.now += 30 * DAY
        ledger.refresh()
        assert learned(ledger)[0] == 100  # all are closed, each is learned once


@pytest.mark.slow
def test_chances_are_right_while_most_decisions_are_open(quick_folder, clock):
    """Three days with a window of two: within a fifth, 4.5 standard errors for the smaller chance.

    Rewards at once and zeros at the close would show a chance three times as large.
    """
    rng = np.random.default_rng(8)
    chance = {"a": 0.05, "b": 0.3}
    policy = zib.contextual.Naive(horizon=1e6, sigma=1.0)
    with opened(
        quick_folder / "shop.db", clock, policy=policy, window="2d", holdout=0.999
    ) as ledger:
        coming = []
        for step in range(60):
            clock.now += 0.05 * DAY
            keys = [f"{step} {n}" for n in range(500)]
            for d in ledger.decide_many(keys, contexts=[[1.0, 0.0]] * 500):
                if rng.random() < chance[d.arm]:
                    coming.append((clock.now + rng.exponential(0.4 * DAY), d.id))
            due = [e for e in coming if e[0] <= clock.now]
            coming = [e for e in coming if e[0] > clock.now]
            ledger.event_many([(f"e{id}", id, 2.0, at) for at, id in due])
            ledger._keeper.refresh(force=False)
        for anew in (False, True):
            if anew:
                ledger.refresh()
            tally = ledger._book.model.bandit._tally
            assert 0.5 < tally.pulls.sum() / 30_000 < 0.95
            np.testing.assert_allclose(tally.nonzero / tally.pulls, [0.05, 0.3], rtol=0.2)


@pytest.mark.parametrize("learn", ["close", "event"])
def test_other_ways_to_learn(database, clock, learn):
    with opened(database, clock, learn=learn) as ledger:
        found = ledger.decide_many([f"k{n}" for n in range(30)], contexts=[[1.0, 0.5]] * 30)
        ledger.event_many([(f"e{n}", found[n].id, 3.0) for n in range(10)])
        clock.now += 3 * DAY
        ledger.refresh()
        assert learned(ledger) == ((0, 0) if learn == "close" else (10, 10))
        clock.now += 5 * DAY
        ledger.refresh()
        assert learned(ledger) == (30, 10)


def test_what_changes_later_is_put_right(database, clock, policy):
    with opened(database, clock) as ledger:
        found = ledger.decide_many([f"k{n}" for n in range(20)], contexts=[[1.0, 0.5]] * 20)
        ledger.event_many([(f"e{n}", found[n].id, 3.0) for n in range(10)])
        ledger.refresh()
        assert learned(ledger) == (10, 10)
        ledger.revise("refund", found[0].id, 0.0)
        ledger.cancel(found[1].id)
        ledger.cancel(found[19].id)
        clock.now += 8 * DAY
        ledger.event("late", found[12].id, 1.0, at=clock.now - 2 * DAY)
        ledger.refresh()
        ledger.refresh()
        assert learned(ledger) == (18, 9)


def test_a_version_is_the_fold_of_the_log(database, clock, policy):
    """Learning as it comes and learning all of it anew agree once all is closed."""
    rng = np.random.default_rng(4)
    with opened(database, clock, policy=policy, learn="event") as ledger:
        ledger._coming = []
        for _ in range(5):
            play(ledger, clock, rng, 10)
            ledger.refresh()
        clock.now += 30 * DAY
        for due, id in ledger._coming:
            ledger.event(f"e{id}", id, 2.0, at=due)
        ledger.refresh()
        tally = ledger._book.model.bandit._tally.pulls.copy()
        version = ledger._book.model.version
    with opened(database, clock, policy=policy, learn="event") as ledger:
        assert ledger._book.model.version == version
        assert np.array_equal(ledger._book.model.bandit._tally.pulls, tally)
        ledger.refresh()  # a new leader learns anew
        assert ledger._book.model.whole
        assert np.array_equal(ledger._book.model.bandit._tally.pulls, tally)


def test_decisions_are_replayed(database, clock, policy):
    rng = np.random.default_rng(6)
    with opened(database, clock, policy=policy, evidence=2) as ledger:
        ledger._coming = []
        for k in range(6):
            play(ledger, clock, rng, 8)
            if k == 2:
                ledger.add_arm("c")
                ledger.pause_arm("a")
            ledger._keeper.refresh(force=k == 4)
        kept = ledger._database.reader().rows("SELECT content FROM model")
        assert {Versioned.read(text)["whole"] is None for (text,) in kept} == {True, False}
        probabilities = {
            row[0] for row in ledger._database.reader().rows("SELECT probability FROM decision")
        }
        assert len(probabilities) > 4
        reader = ledger._database.reader()
        reader.begin()
        found = replay(reader)
        assert (found.decisions, found.replayed, found.problems) == (48, 48, [])


def same_arrays(one, other):
    """Whether two states hold the same numbers, bit for bit; scratch space does not count."""
    if isinstance(one, tuple):
        names = getattr(one, "_fields", range(len(one)))
        pairs = zip(names, one, other, strict=True)
        return all(same_arrays(a, b) for name, a, b in pairs if name not in SCRATCH)
    return np.array_equal(one, other, equal_nan=True)


SCRATCH = ("work", "evidence")


def test_arms_and_corrections_are_learned_alike_by_all_who_serve(database, clock, policy):
    """A version that is read, whole or in pieces, goes on bit for bit as the one that was made."""
    rng = np.random.default_rng(11)
    with opened(database, clock, policy=policy, evidence=2) as ledger:
        ledger._coming = []
        for k in range(12):
            play(ledger, clock, rng, 12)
            found = ledger.decide(f"then {k}", context=[1.0, 0.1 * k])
            if k in (2, 5):
                ledger.add_arm(f"new {k}")
            if k == 4:
                ledger.retire_arm("a")
            if k == 6:
                ledger.cancel(found.id)
            if k == 7:
                ledger.event("paid", found.id, 3.0)
                ledger._keeper.refresh(force=False)
                ledger.revise("refund", found.id, 0.0)
            ledger._keeper.refresh(force=k in (3, 8))
            serving, reader = ledger._book.model, ledger._database.reader()
            reader.begin()
            ((text,),) = reader.rows(
                "SELECT content FROM model WHERE version = $1", serving.version
            )
            learning = Learning(Book(1, ledger.name, ledger._book.configuration))
            read = learning.load(reader, serving.version, text)
            reader.rollback()
            assert read.labels == serving.labels
            assert same_arrays(read.bandit._state, serving.bandit._state)
        assert serving.bandit._tally.nonzero.sum() > 20
        assert ledger.check()
        assert not ledger.replay().problems
        chances = ledger._database.reader().rows("SELECT MIN(probability) FROM decision")
        assert chances[0][0] >= 0.001


def test_a_version_that_could_not_be_written_is_made_up_for(database, clock, policy, monkeypatch):
    rng = np.random.default_rng(12)
    with opened(database, clock, policy=policy, evidence=2) as ledger:
        ledger._coming = []
        play(ledger, clock, rng, 40)
        ledger.refresh()
        for new in ("c", "d", "e"):
            play(ledger, clock, rng, 20)
            if new == "e":
                ledger._keeper._makes.to_correct = 1  # so everything is learned anew
            with monkeypatch.context() as patch:
                patch.setattr(ledger._keeper, "_write", lambda made: fail())
                with pytest.raises(LedgerError, match="the disk is full"):
                    ledger._keeper.refresh(force=new == "e")
            if new == "d":
                ledger.add_arm(new)
            before = ledger._book.model.version
            ledger._keeper.refresh(force=False)  # nothing has happened since
            assert ledger._book.model.version == before + 1
            assert ledger._book.model.whole
            play(ledger, clock, rng, 10)
            ledger._keeper.refresh(force=False)
            assert not ledger._book.model.whole
        play(ledger, clock, rng, 5)
        assert not ledger.replay().problems


def fail():
    raise LedgerError("the disk is full")


def test_a_policy_for_all_arms_follows_the_arms(database, clock):
    """Whatever number of arms it was given with; and a bandit plays what it was made with."""
    with opened(database, clock, policy=Adaptive(n_arms=7, kind="ts")) as ledger:
        assert ledger._book.model.bandit.spec == Adaptive(n_arms=2, kind="ts")
        ledger.add_arm("c")
        ledger.refresh()
        assert ledger._book.model.bandit.spec.n_arms == 3
    for n in (3, 5):
        with opened(database, clock, arms=None, policy=Adaptive(n_arms=n, kind="ts")) as ledger:
            assert ledger._book.model.bandit.spec.n_arms == 3
    with pytest.raises(InvalidParameterError, match="`policy` must be what the bandit"):
        opened(database, clock, arms=None, policy=Adaptive(n_arms=3))


@pytest.mark.parametrize(
    ("given", "kept"), [(None, Adaptive(n_arms=1, kind="ts")), (LaplaceTS(), LaplaceTS())]
)
def test_a_bandit_goes_on_with_the_policy_it_was_made_with(database, clock, given, kept):
    for policy in (given, None):
        with opened(database, clock, policy=policy) as ledger:
            assert ledger._book.configuration.policy == kept


def test_an_encoder_is_kept_with_the_bandit(database, clock):
    encoder = zib.Encoder().fit([{"age": 20, "land": "IT"}, {"age": 60, "land": "FR"}] * 5)
    given = {"features": None, "encoder": encoder}
    with opened(database, clock, **given) as ledger:
        ledger.decide("one", context={"age": 35, "land": "IT"})
        with pytest.raises(InvalidParameterError, match="`context` must be given"):
            ledger.decide("two")
    with Ledger(database, clock=clock, background=False) as ledger:
        assert ledger.decide("one", context={"age": 35, "land": "IT"}).version == 1
        ledger.decide("two", context={"age": 50, "land": "FR"})
        ((text,),) = ledger._database.reader().rows(
            "SELECT context FROM decision WHERE key = 'two'"
        )
        assert '"given": {"age": 50, "land": "FR"}' in text


def test_bad_arguments_are_refused(database, clock):
    for given, words in (
        ({"policy": zib.mab.ZIAdaptive()}, "`policy` must be a contextual policy"),
        ({"policy": ByCategory(spec=POLICY, categories=2)}, "`policy` must not need the category"),
        ({"features": None, "encoder": object()}, "`encoder` must be a zib.Encoder"),
        ({"features": None, "encoder": zib.Encoder()}, "`encoder` must be fitted"),
    ):
        with pytest.raises(InvalidParameterError, match=words):
            opened(database, clock, **given)
    with opened(database, clock) as ledger:
        for context in ([1.0], [1.0, np.inf], "ab", {"a": 1}, [[1.0, 2.0]]):
            with pytest.raises(InvalidParameterError, match="^`context` must"):
                ledger.decide("k", context=context)


@pytest.mark.slow
def test_in_the_background_a_reward_is_learned_within_a_second(tmp_path):
    policy = zib.contextual.Naive(horizon=1e6, sigma=1.0, kind="ts")
    given = {"arms": ["a", "b"], "features": 2, "policy": policy, "window": "7d"}
    for opening in range(2):
        with Ledger(tmp_path / "shop.db", **given) as ledger:
            keys = [f"{opening} {n}" for n in range(300)]
            found = ledger.decide_many(keys, contexts=[[1.0, 0.5]] * 300)
            for n in range(5):
                before, start = learned(ledger)[1], time.monotonic()
                ledger.event(f"{opening} {n}", found[n].id, 2.0)
                while learned(ledger)[1] == before:
                    assert time.monotonic() < start + 30.0
                    time.sleep(0.01)
                assert n == 0 or time.monotonic() - start < 1.0  # the first learns all anew
            assert learned(ledger)[1] == 5 * (opening + 1)
            assert ledger.statistics().problem is None
