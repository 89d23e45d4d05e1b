"""Model versions of a running ledger: when they are made, and that nothing is made up."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from scipy import stats

import zib
from tests.live.scene import Clock
from zib.core.entry import interpreted
from zib.live import Ledger, LedgerError
from zib.live.keeper import Keeper
from zib.live.model import Model, in_flight
from zib.live.statistics import Recent, read_statistics
from zib.mab import NormalTS

DAY = 86_400.0


@pytest.fixture(autouse=True)
def _interpreted():
    """Nothing is compiled: what is tested here is not how fast policies are."""
    with interpreted():
        yield


@pytest.fixture
def clock():
    return Clock(1_000_000.0)


def opened(database, clock, **settings):
    given = {"arms": ["a", "b", "c"], "policy": NormalTS(), "window": "7d", "draws": 200}
    return Ledger(database, clock=clock, background=False, **{**given, **settings})


def models_of(ledger):
    rows = ledger._database.reader().rows("SELECT version, content FROM model ORDER BY version")
    return {
        version: Model.loads(content, ledger.name, ledger._book.configuration)
        for version, content in rows
    }


def replayed(ledger):
    """Return key, arm and probability of all decisions, logged and computed again."""
    models = models_of(ledger)
    logged, again = [], []
    for key, arm, probability, version, eligible in ledger._database.reader().rows(
        "SELECT key, arm, probability, version, eligible FROM decision WHERE kind = 0"
    ):
        model = models[version]
        among = model.active if eligible is None else tuple(json.loads(eligible))
        logged.append((key, arm, probability))
        again.append((key, *model.draw(key, among)[:2]))
    return logged, again


def test_decisions_are_replayed_from_the_log_alone(database, clock):
    with opened(database, clock) as ledger:
        for day in range(6):
            clock.now += DAY
            some = ["a", "b"] if day % 2 else None
            found = ledger.decide_many([f"{day} {n}" for n in range(30)], arms=some)
            ledger.event_many([(f"o{d.id}", d.id, 3.0) for d in found[::5] if d.arm == "b"])
            if day == 3:
                ledger.pause_arm("b")
                ledger.decide("after b was paused")
                ledger.add_arm("d")
                ledger.decide("before a version knows d")
            ledger.refresh()
        logged, again = replayed(ledger)
        assert len(logged) == 182
        assert logged == again
        assert len(models_of(ledger)) == 7


def test_a_version_counts_what_is_in_the_database(database, clock):
    with opened(database, clock, window="10s") as ledger:
        found = ledger.decide_many([str(n) for n in range(60)])
        clock.now += 4.0
        for n, decision in enumerate(found[:20]):
            ledger.event(f"e{n}", decision.id, 2.0 + n % 3)
        ledger.revise("r", found[3].id, 0.0)
        ledger.cancel(found[59].id)
        clock.now += 100.0
        ledger.refresh()
        evidence = ledger._book.model.evidence
        assert evidence.pulls.sum() == 59.0
        assert evidence.nonzero.sum() == 19.0
        assert evidence.total.sum() == sum(2.0 + n % 3 for n in range(20)) - 2.0


def test_old_buckets_are_put_together_and_sums_stay(database, clock):
    with opened(database, clock, window="1000s") as ledger:
        rng = np.random.default_rng(1)
        for n in range(40):
            clock.now += 50.0
            found = ledger.decide_many([f"{n} {k}" for k in range(10)])
            paid = [d for d in found if rng.random() < 0.3]
            ledger.event_many([(f"e{d.id}", d.id, 1.0, clock.now + 3.0) for d in paid])
        before = read_statistics(ledger._database.reader(), 1, 3)
        clock.now += 900.0
        ledger.refresh()
        after = read_statistics(ledger._database.reader(), 1, 3)
        assert len(after.waiting.n) < len(before.waiting.n) / 2
        for k in range(3):
            for old, new in ((before.waiting, after.waiting), (before.converted, after.converted)):
                assert old.n[old.arm == k].sum() == new.n[new.arm == k].sum()
        # an event that changes a decision whose bucket is gone
        ledger.revise("late", ledger.decision_id("0 0"), 7.0)
        ledger.refresh()
        assert ledger._book.model.evidence.pulls.sum() == pytest.approx(400, abs=100)
        clock.now += 2_000.0
        ledger.refresh()
        assert ledger._book.model.evidence.pulls.sum() == 400.0


def test_versions_that_served_nobody_are_not_kept(quick_folder, clock):
    with opened(quick_folder / "shop.db", clock) as ledger:
        ledger.decide("one")
        for _ in range(5):
            clock.now += DAY
            ledger.refresh()
        ledger.decide("two")
        ledger.refresh()
        ledger.refresh()
        assert set(models_of(ledger)) == {1, 6, 7, 8}  # those that served, and the latest two
        ledger.decide("three")
    with opened(quick_folder / "shop.db", clock) as ledger:  # which served is not known any more
        ledger.refresh()
        ledger.refresh()
        assert set(models_of(ledger)) == {1, 6, 7, 8, 9, 10}


def test_versions_are_made_by_events_arms_and_ages(database, clock):
    with opened(database, clock) as ledger:
        assert ledger._keeper.refresh(force=False) == 1  # nothing has happened
        decision = ledger.decide("one")
        assert ledger._keeper.refresh(force=False) == 1  # a decision of age 0 counts nothing
        ledger.event("e", decision.id, 1.0)
        assert ledger._keeper.refresh(force=False) == 2
        assert ledger._keeper.refresh(force=False) == 2
        ledger.pause_arm("c")
        assert ledger._keeper.refresh(force=False) == 3
        ledger.decide("two")
        for _ in range(2):  # the second decision ages, also if the clock jumps back
            clock.now += 600.0
            version = ledger._keeper.refresh(force=False)
        clock.now -= 900.0
        assert ledger._keeper.refresh(force=False) == version + 1 == 6
        clock.now += 30 * DAY
        assert ledger._keeper.refresh(force=False) == 7
        clock.now += 30 * DAY
        assert ledger._keeper.refresh(force=False) == 7  # nothing ages any more


def test_a_ledger_goes_on_with_its_last_version(database, clock):
    with opened(database, clock) as ledger:
        ledger.decide("one")
        version = ledger.refresh()
        shares = ledger._book.model.allocation((0, 1, 2))
    with opened(database, clock) as ledger:
        assert ledger.decide("two").version == version
        assert ledger._book.model.allocation((0, 1, 2)) == shares


def test_two_leaders_write_each_version_once(database, clock):
    with opened(database, clock) as ledger:
        other = Keeper(ledger._book, ledger._database, ledger._writer, ledger._now)
        assert [k.refresh() for k in (ledger._keeper, other, ledger._keeper)] == [2, 3, 4]
        stale = ledger._book.model
        assert not other._write(stale)  # the number is taken
        other.close()


def test_the_holdout_is_even_and_by_unit(quick_folder, clock):
    """Each chi-square test rejects with probability 1e-6."""
    with opened(quick_folder / "shop.db", clock, holdout=0.25) as ledger:
        first = ledger.decide_many([f"x{n}" for n in range(300)])
        ledger.event_many([(f"e{d.id}", d.id, 50.0) for d in first if d.arm == "c"])
        clock.now += 8 * DAY
        ledger.refresh()
        found = ledger.decide_many(
            [f"k{n}" for n in range(4_000)], units=[f"u{n // 2}" for n in range(4_000)]
        )
        held = [d for d in found if d.kind == "holdout"]
        assert all(d.probability == 1 / 3 for d in held)
        arms = [sum(d.arm == label for d in held) for label in "abc"]
        assert stats.chisquare(arms).pvalue > 1e-6
        pairs = len(held), len(found) - len(held)
        assert stats.chisquare(np.array(pairs) / 2, [500.0, 1_500.0]).pvalue > 1e-6
        kinds = [d.kind for d in found]
        assert kinds[::2] == kinds[1::2]  # a unit is in it or not


def test_in_shadow_mode_the_default_is_served_and_the_wish_is_logged(database, clock):
    with opened(database, clock, shadow="b") as ledger:
        found = ledger.decide_many([f"k{n}" for n in range(60)])
        assert {(d.arm, d.probability, d.kind) for d in found} == {("b", 1.0, "shadow")}
        assert {d.wanted for d in found} == {"a", "b", "c"}
        with pytest.raises(LedgerError, match="`arms` must hold the arm that is served in shadow"):
            ledger.decide("other", arms=["a", "c"])


def test_what_goes_wrong_is_reported_and_serving_goes_on(quick_folder, monkeypatch):
    ledger = Ledger(
        quick_folder / "shop.db", arms=["a"], policy=NormalTS(), window="7d", refresh=0.02
    )
    try:
        monkeypatch.setattr("zib.live.keeper.LONGEST_PAUSE", 0.1)
        monkeypatch.setattr(
            "zib.live.model.Model.build", lambda *args: (_ for _ in ()).throw(ValueError("broken"))
        )
        decision = ledger.decide("one")
        ledger.event("e", decision.id, 1.0)
        until = time.monotonic() + 10.0
        while ledger._keeper.problem is None and time.monotonic() < until:
            time.sleep(0.01)
        assert ledger.statistics().problem == "ValueError: broken"
        assert ledger.decide("two").version == 1
        monkeypatch.undo()
        while ledger._keeper.problem is not None and time.monotonic() < until:
            time.sleep(0.01)
        assert ledger._keeper.problem is None
    finally:
        ledger.close()


def test_old_buckets_of_many_arms_are_read_now_and_then(quick_folder, clock):
    labels = [f"arm {k}" for k in range(25)]
    rng = np.random.default_rng(3)
    with opened(
        quick_folder / "shop.db", clock, arms=labels, window="100s", evidence=10**6
    ) as ledger:
        recent = Recent(1, ledger._book.rules)
        for n in range(40):
            clock.now += 0.2
            found = ledger.decide_many([f"{n} {k}" for k in range(50)])
            paid = [d for d in found if rng.random() < 0.3]
            ledger.event_many([(f"e{d.id}", d.id, 1.0, clock.now) for d in paid])
        c, now = ledger._database.reader(), ledger._now()
        exact = recent.read(c, 25, now, whole=True)
        for _ in range(2):  # everything, and what is recent only
            found = recent.read(c, 25, now, whole=False)
            assert len(found.waiting.n) < len(exact.waiting.n)
            both = [in_flight(ledger._book.configuration, labels, x, now) for x in (exact, found)]
            assert np.array_equal(
                both[0].waiting + both[0].closed, both[1].waiting + both[1].closed
            )
            np.testing.assert_allclose(both[1].zeros, both[0].zeros, rtol=0.01)
        new = ledger.decide("new", at=clock.now)
        old = ledger.decide("old", at=clock.now - 6.0)
        more = recent.read(c, 25, now, whole=False).waiting.n.sum() - found.waiting.n.sum()
        assert more == 1  # the old one is not seen yet
        after = recent.read(c, 25, now + 60_000_000, whole=False)
        assert after.waiting.n.sum() - found.waiting.n.sum() == 2
        assert new.arm in labels
        assert old.arm in labels


@pytest.mark.slow
def test_an_event_is_in_a_version_within_a_second(tmp_path):
    with Ledger(tmp_path / "shop.db", arms=["a", "b"], window="7d") as ledger:
        waits = []
        for n in range(6):
            decision = ledger.decide(str(n))
            start = time.monotonic()
            ledger.event(f"e{n}", decision.id, 5.0)
            while ledger._book.model.evidence.nonzero.sum() <= n:
                time.sleep(0.005)
                assert time.monotonic() < start + 10.0
            waits.append(time.monotonic() - start)
        assert max(waits) < 1.0
        assert zib.mab.ZIAdaptive() == ledger._book.configuration.policy
