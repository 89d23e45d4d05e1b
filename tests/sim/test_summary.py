"""Summaries that stream: equal to those of all replications, in memory that does not grow."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

import zib
from zib.sim import Store, Summary, schedule
from zib.sim.loop import Run
from zib.sim.plan import Block, Plan
from zib.sim.summary import EXACT, WIDTH, CollectSummary, Quantiles

ENV = zib.env.GaussianMAB(means=[1.0, 2.0, 1.5], probs=[0.3, 0.4, 0.2], sigma=1.0)
SPECS = {"ucb1": zib.mab.UCB1(), "wide": zib.mab.UCB1(scale=3.0), "v": zib.mab.UCBV()}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr("zib.sim.plan.LONGEST_BLOCK", 8)


def simulate(**options):
    options = {"horizon": 100, "replications": 50, "progress": False, "checkpoints": 10} | options
    return zib.simulate(SPECS, ENV, **options)


@pytest.fixture(scope="module")
def runs():
    return simulate()


@pytest.fixture(scope="module")
def summary():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zib.sim.plan.LONGEST_BLOCK", 8)
        return simulate(keep="summary", backend="serial")


def test_it_says_what_all_replications_say(runs, summary):
    assert summary.labels == runs.labels
    assert summary.complete
    assert summary.count == 50
    assert np.allclose(summary.mean(), runs.mean(), rtol=1e-13)
    assert np.allclose(summary.standard_error(), runs.standard_error(), rtol=1e-12)
    assert np.allclose(summary.interval(0.9), runs.interval(0.9), rtol=1e-12)
    for q in (0.0, 0.1, 0.37, 0.5, 1.0):
        assert np.allclose(summary.quantile(q), runs.quantile(q), rtol=1e-13)  # exact up to 1000
    for pair in (("ucb1", "v"), ("v", "ucb1"), ("wide", "ucb1")):
        ours, theirs = summary.difference(*pair), runs.difference(*pair)
        for a, b in zip(ours, theirs):
            assert np.allclose(a, b, rtol=1e-11, atol=1e-12)
    assert (summary.difference("v", "v").high == 0.0).all()
    assert np.allclose(summary.mean_pulls(), runs.pulls.mean(axis=1))
    frame, other = summary.summary(), runs.summary()
    assert list(frame.columns) == list(other.columns)
    assert np.allclose(frame.drop(columns="policy"), other.drop(columns="policy"))
    assert "50 replications" in repr(summary)
    with pytest.raises(zib.InvalidParameterError, match="`second` must be one of"):
        summary.difference("v", "nobody")
    with pytest.raises(zib.InvalidParameterError, match="`level` must lie in"):
        summary.interval(1.5)


def equal(one: Summary, other: Summary) -> bool:
    return all(np.array_equal(one._arrays[k], other._arrays[k]) for k in one._arrays)


def test_it_is_the_same_to_the_last_bit_whoever_played(summary, tmp_path):
    assert equal(summary, simulate(keep="summary", workers=3))
    for _ in range(2):
        assert equal(summary, simulate(keep="summary", store=tmp_path))
    simulate(store=tmp_path)
    assert equal(summary, simulate(keep="summary", store=tmp_path))


@pytest.mark.slow
def test_it_is_the_same_with_processes(summary):
    assert equal(summary, simulate(keep="summary", backend="processes", workers=2))


@pytest.mark.parametrize("stored", [False, True])
def test_blocks_may_arrive_in_any_order(runs, summary, rng, tmp_path, stored):
    """Without a store few wait in memory; with one, none."""
    plan = Plan.of(SPECS, ENV, horizon=100, replications=50, checkpoints=10)
    collector = CollectSummary(plan)
    made = schedule.Schedule(
        plan, Store(tmp_path) if stored else None, collector, lambda more: None
    )
    made.look_up()
    made.cut_for(1, least=plan.block_length)
    out: list[Block] = []
    held = []
    while made.unfinished:
        while len(out) < 20 and (part := made.next()) is not None:
            out.append(part)
        part = out.pop(int(rng.integers(len(out))))
        at = slice(part.first, part.last)
        made.take(part, Run(*(x[part.policy, at] for x in (runs.regret, runs.reward, runs.pulls))))
        held.append(sum(rows is not None for rows in made._done.values()))
    assert out == []
    assert equal(collector.result({}), summary)
    assert max(held) < len(SPECS) if stored else max(held) < schedule.AHEAD + 20 + len(SPECS)


def test_blocks_that_would_pile_up_are_not_handed_out(runs):
    plan = Plan.of(SPECS, ENV, horizon=100, replications=50, checkpoints=10)
    made = schedule.Schedule(plan, None, CollectSummary(plan), lambda more: None)
    made.look_up()
    made.cut_for(1, least=plan.block_length)
    slow = made.next()
    finished = 0
    while (part := made.next()) is not None:
        at = slice(part.first, part.last)
        made.take(part, Run(*(x[part.policy, at] for x in (runs.regret, runs.reward, runs.pulls))))
        finished += 1
    assert finished < len(plan.blocks) - 1
    assert finished <= schedule.AHEAD + 2 * len(SPECS)
    at = slice(slow.first, slow.last)
    made.take(slow, Run(*(x[slow.policy, at] for x in (runs.regret, runs.reward, runs.pulls))))
    assert made.next() is not None


@pytest.mark.parametrize("damage", ["cut", "unreadable"])
def test_a_stored_block_that_is_damaged_is_played_in_its_turn(
    summary, tmp_path, monkeypatch, damage
):
    simulate(store=tmp_path)
    plan = Plan.of(SPECS, ENV, horizon=100, replications=50, checkpoints=10)
    path = Store(tmp_path).path_of(plan.key_of(plan.blocks[4]))
    told = []
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        read = type(path).read_bytes

        def refuse(self):
            if self.name == path.name:
                raise PermissionError(13, "Permission denied")
            return read(self)

        monkeypatch.setattr(type(path), "read_bytes", refuse)
    with pytest.warns(RuntimeWarning, match="damaged" if damage == "cut" else "cannot be read"):
        found = simulate(
            keep="summary", store=tmp_path, progress=lambda *x: told.append(x), backend="serial"
        )
    assert equal(found, summary)
    assert told[-1] == (1500, 1500)


def test_interrupted(summary, tmp_path):
    def stop(done, total):
        if done >= 900:
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="interrupted: 72 of 150 runs"):
        partial = simulate(keep="summary", backend="serial", progress=stop, store=tmp_path)
    assert partial.count == 24
    assert not partial.complete
    assert "(interrupted)" in repr(partial)
    first = simulate(replications=24)
    assert np.allclose(partial.mean(), first.mean())
    assert equal(simulate(keep="summary", store=tmp_path), summary)


def test_files(summary, tmp_path):
    path = tmp_path / "summary.npz"
    summary.save(path)
    again = Summary.load(path)
    assert equal(again, summary)
    assert again.provenance == summary.provenance
    assert (again.count, again.replications, again.labels) == (50, 50, summary.labels)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(zib.SavedStateError, match="damaged"):
        Summary.load(path)
    with pytest.raises(zib.InvalidParameterError, match="`keep` must be one of 'runs', 'summary'"):
        simulate(keep="all")


def test_plot_shows_the_same_curves(runs, summary):
    from matplotlib.figure import Figure

    lines = []
    for result in (runs, summary):
        ax = Figure().subplots()
        assert result.plot(ax) is ax
        lines.append([line.get_ydata() for line in ax.get_lines()])
        assert len(ax.collections) == 3  # the bands
    assert np.allclose(*lines)


# --------------------------------------------------------------------------------- quantiles


@pytest.mark.parametrize("n", [1, 2, EXACT - 1, EXACT])
def test_exact_up_to_a_stated_number(rng, n):
    x = rng.standard_normal((n, 3))
    quantiles = Quantiles(3)
    for part in np.array_split(x, 3):
        quantiles.add(part)
    for q in (0.0, 0.3, 0.5, 1.0):
        assert np.array_equal(np.quantile(quantiles.values(), q, axis=1), np.quantile(x, q, axis=0))


LAWS = {
    "positive": lambda rng, n: rng.gamma(3.0, 100.0, n),
    "both signs": lambda rng, n: rng.standard_normal(n),
    "mostly zero": lambda rng, n: rng.exponential(size=n) * (rng.random(n) < 0.2),
    "many ties": lambda rng, n: np.floor(5 * rng.random(n)),
    "over many powers of ten": lambda rng, n: 10.0 ** rng.uniform(-3.0, 6.0, n),
    "rising": lambda rng, n: np.arange(n) ** 2.0,
    "falling": lambda rng, n: np.arange(n)[::-1] ** 0.5,
    "always zero": lambda rng, n: np.zeros(n),
    "zero at first": lambda rng, n: np.where(np.arange(n) < 2 * EXACT, 0.0, 7.0),
}


@pytest.mark.parametrize("n", [EXACT + 1, 20_011])
def test_beyond_it_the_stated_error_is_kept(rng, n):
    """Whatever the law: within half a bin of a value whose rank is off by 0.1 % at most."""
    x = np.stack([law(rng, n) for law in LAWS.values()], axis=1)
    quantiles = Quantiles(len(LAWS))
    for part in np.array_split(x, n // 250):
        quantiles.add(part)
    values = quantiles.values()
    assert values.shape == (len(LAWS), EXACT)
    assert (np.diff(values, axis=1) >= 0.0).all()
    ordered = np.sort(x, axis=0)
    small = 1e-4 * np.abs(x[:EXACT]).max(axis=0)
    small = np.where(small > 0.0, small, 1.0)
    for q in (0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0):
        found = np.quantile(values, q, axis=1)
        ranks = q * (n - 1) + np.array([-1.0, 1.0]) * (n / (EXACT - 1))
        low, high = ordered[np.clip([np.floor(ranks[0]), np.ceil(ranks[1])], 0, n - 1).astype(int)]
        slack = 0.51 * WIDTH * np.hypot(small, np.maximum(np.abs(low), np.abs(high)))
        for i, law in enumerate(LAWS):
            assert low[i] - slack[i] <= found[i] <= high[i] + slack[i], (law, q)


def test_the_answer_does_not_depend_on_how_rows_are_handed_over(rng):
    x = rng.standard_normal((3000, 2))
    whole, parts = Quantiles(2), Quantiles(2)
    for part in np.split(x, [1100]):
        whole.add(part)
    for part in np.split(x, [900, 1100, 1201, 1500]):
        parts.add(part)
    assert np.array_equal(whole.values(), parts.values())


def test_memory_does_not_grow_with_replications(rng):
    columns, policies = 1000, 2
    plan = SimpleNamespace(
        checkpoints=np.arange(columns),
        specs=[None] * policies,
        environment=SimpleNamespace(n_arms=3),
        labels=("a", "b"),
        replications=0,
    )
    rows = Run(
        rng.random((100, columns)), rng.random((100, columns)), np.ones((100, 3), dtype=np.int64)
    )
    peaks = []
    for blocks in (20, 100):
        tracemalloc.start()
        collector = CollectSummary(plan)
        for i in range(blocks):
            rows.regret[:] = np.roll(rows.regret, i, axis=1)
            collector.add({Block(policy, 0, 100): rows for policy in range(policies)})
        collector.result({}).quantile(0.5)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # 8 000 more replications of both would be 128 MB
    assert peaks[1] - peaks[0] < 5e6, peaks
    assert peaks[1] < 100e6, peaks
