"""Summaries that stream: equal to those of all replications, in memory that does not grow."""

from __future__ import annotations

import math
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

import zib
from zib.sim import Store, Summary, gather
from zib.sim.gather import Stream
from zib.sim.loop import Run
from zib.sim.plan import Plan
from zib.sim.sketch import SIZE, Sketch
from zib.sim.summary import Merger

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
        assert np.allclose(summary.quantile(q), runs.quantile(q), rtol=1e-13)  # exact up to 256
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
    with pytest.raises(zib.InvalidParameterError, match="`policy` must be one of"):
        summary.difference("v", "nobody")
    with pytest.raises(zib.InvalidParameterError, match="`level` must lie in"):
        summary.interval(1.5)


def equal(one: Summary, other: Summary) -> bool:
    return all(np.array_equal(one._arrays[k], other._arrays[k]) for k in one._arrays)


def test_it_is_the_same_to_the_last_bit_whoever_played(summary, tmp_path):
    assert equal(summary, simulate(keep="summary", workers=3))
    assert equal(summary, simulate(keep="summary", backend="processes", workers=2))
    for _ in range(2):
        assert equal(summary, simulate(keep="summary", store=tmp_path))
    simulate(store=tmp_path)
    assert equal(summary, simulate(keep="summary", store=tmp_path))


def test_blocks_may_arrive_in_any_order_and_wait_on_disk(runs, summary, rng, monkeypatch):
    plan = Plan.of(SPECS, ENV, horizon=100, replications=50, checkpoints=10)
    blocks = plan.nameless_blocks
    for disk in (True, False):
        stream = Stream(plan, lambda block: pytest.fail("nothing is damaged"))
        if not disk:
            monkeypatch.setattr(
                gather.tempfile, "TemporaryDirectory", lambda **_: (_ for _ in ()).throw(OSError)
            )
        held = []
        for i in rng.permutation(len(blocks)):
            block = blocks[i]
            at = slice(block.first, block.last)
            rows = Run(*(x[block.policy, at] for x in (runs.regret, runs.reward, runs.pulls)))
            stream.done(block, rows, None)
            held.append(sum(isinstance(x, Run) for _, x in stream._arrived.values()))
        assert stream._arrived == {}
        assert equal(stream.results({}), summary)
        # in memory there are only blocks of the row whose turn it is
        assert (max(held) < len(SPECS)) == disk
        folder = stream._spare and stream._spare.folder
        assert (folder is not None) == disk
        stream.close()
        assert folder is None or not folder.exists()


def test_a_stored_block_that_is_damaged_is_played_in_its_turn(summary, tmp_path):
    simulate(store=tmp_path)
    plan = Plan.of(SPECS, ENV, horizon=100, replications=50, checkpoints=10)
    path = Store(tmp_path).path_of(plan.blocks[4].key)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(RuntimeWarning, match="damaged"):
        assert equal(simulate(keep="summary", store=tmp_path), summary)


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


# --------------------------------------------------------------------------------- the sketch


def rank_errors(x, sketch) -> np.ndarray:
    """By how much of n the rank of each answer is off."""
    n = len(x)
    out = []
    for q in (0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0):
        for column, value in zip(np.sort(x, axis=0).T, sketch.quantile(q)):
            low, high = (np.searchsorted(column, value, side) for side in ("left", "right"))
            wanted = q * (n - 1)
            out.append(max(0.0, low - 1 - wanted, wanted - high) / n)
    return np.array(out)


@pytest.mark.parametrize("n", [1, 2, SIZE - 1, SIZE])
def test_exact_while_all_values_fit(rng, n):
    x = rng.standard_normal((n, 3))
    sketch = Sketch(3)
    sketch.add(x)
    if n < SIZE:
        for q in (0.0, 0.3, 0.5, 1.0):
            assert np.allclose(sketch.quantile(q), np.quantile(x, q, axis=0), rtol=1e-13)
    assert rank_errors(x, sketch).max() == 0.0


@pytest.mark.parametrize("kind", ["random", "rising", "falling", "zigzag", "many ties"])
@pytest.mark.parametrize("n", [1000, 20_011])
def test_rank_error_is_within_its_bound(rng, kind, n):
    x = rng.random((n, 4))
    if kind in ("rising", "falling"):
        x.sort(axis=0)
    if kind == "falling":
        x = x[::-1]
    if kind == "zigzag":
        x = np.sort(x, axis=0)
        x[::2] = x[::2][::-1]
    if kind == "many ties":
        x = np.floor(5 * x)
    sketch = Sketch(4)
    sketch.add(x)
    bound = math.ceil(math.log2(n / SIZE)) / (2 * SIZE)
    errors = rank_errors(x, sketch)
    assert errors.max() <= bound + 1 / n
    if kind == "random":
        assert errors.max() < 0.006


def test_the_answer_does_not_depend_on_how_rows_are_handed_over(rng):
    x = rng.standard_normal((3000, 2))
    whole, parts = Sketch(2), Sketch(2)
    whole.add(x)
    for part in np.split(x, np.sort(rng.choice(3000, 40, replace=False))):
        parts.add(part)
    for one, other in zip(whole.content, parts.content):
        assert np.array_equal(one, other)
    assert whole.content[1].sum() == 3000


def test_memory_does_not_grow_with_replications(rng):
    columns, policies = 1000, 2
    plan = SimpleNamespace(
        checkpoints=np.arange(columns),
        specs=[None] * policies,
        environment=SimpleNamespace(n_arms=3),
        labels=("a", "b"),
        replications=0,
    )
    block = Run(
        rng.random((100, columns)), rng.random((100, columns)), np.ones((100, 3), dtype=np.int64)
    )
    peaks = []
    for blocks in (1, 200):
        tracemalloc.start()
        merger = Merger(plan)
        for i in range(blocks):
            block.regret[:] = np.roll(block.regret, i, axis=1)
            merger.add([block] * policies)
        merger.summary(plan, {}).quantile(0.5)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # 20 000 replications of both take 640 MB, and 50 more buffers of 2 MB each would be 100 MB;
    # a sketch has at most seven, and they are copied once at the end
    assert peaks[1] - peaks[0] < 2 * 7 * policies * 8 * 256 * columns, peaks
    assert peaks[1] - peaks[0] < 40e6, peaks
