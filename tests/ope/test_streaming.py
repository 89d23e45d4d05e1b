"""A log in a file, in memory, in small or large batches: the same numbers, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ope.helpers import sparse_log
from zib import InvalidParameterError, ope
from zib.logs import LoggedData, LogScan, passes
from zib.logs.ope.estimators import _POISSON
from zib.logs.passes import Block, RowSampler, blocks

POLICIES = {"c": "c", "mix": {"a": 0.2, "b": 0.3, "c": 0.5}, "uniform": "uniform"}
EVERY = ("replay", "ips", "snips", "clipped", "dm", "dr", "sndr", "switch")


class InBatches:
    """The same log, handed out in batches of an odd size."""

    def __init__(self, log, size):
        self._log, self._size = log, size
        self.arms, self.context_names = log.arms, log.context_names
        self.n_rows, self.has_propensity = log.n_rows, log.has_propensity

    def batches(self, size=0):
        return self._log.batches(self._size)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(passes, "BLOCK", 1000)


@pytest.mark.filterwarnings("ignore:policy .* do not use its value by replay")
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("interval", ["corrected", "bootstrap"])
def test_batches_do_not_matter(rng, interval) -> None:
    log = sparse_log(rng, n=5500, p=0.3)
    options = {
        "estimators": EVERY,
        "baseline": "logging",
        "interval": interval,
        "replicates": 200,
        "fit_rows": 2000,
    }
    whole = ope.evaluate(log, POLICIES, **options)
    for size in (1, 7, 999, 1000, 1001, 5499):
        if size == 1 and interval == "bootstrap":
            continue
        again = ope.evaluate(InBatches(log, size), POLICIES, **options)
        assert again.to_dict() == whole.to_dict()


def test_a_file_gives_the_same_as_memory(rng, tmp_path) -> None:
    log = sparse_log(rng, n=70_000)
    frame = log.to_frame()
    frame.to_parquet(tmp_path / "log.parquet")
    scan = LogScan(
        tmp_path / "log.parquet",
        arm="arm",
        reward="reward",
        propensity="propensity",
        context=log.context_names,
    )
    from_file = ope.evaluate(scan, POLICIES, baseline="logging").to_dict()
    assert from_file == ope.evaluate(log, POLICIES, baseline="logging").to_dict()


@pytest.mark.usefixtures("small_blocks")
def test_the_size_of_blocks_changes_only_the_last_digits(rng, monkeypatch) -> None:
    log = sparse_log(rng, n=5500)
    options = {"estimators": ("ips", "snips", "dr", "sndr"), "baseline": "logging"}
    small = ope.evaluate(log, POLICIES, **options)
    monkeypatch.setattr(passes, "BLOCK", 65_536)
    large = ope.evaluate(log, POLICIES, **options)
    for a, b in zip(small.values, large.values, strict=True):
        np.testing.assert_allclose(a[2:6], b[2:6], rtol=1e-10)


def test_blocks_are_cut_at_multiples(rng, monkeypatch) -> None:
    monkeypatch.setattr(passes, "BLOCK", 100)
    log = sparse_log(rng, n=250)
    found = list(blocks(InBatches(log, 33)))
    assert [(b.number, b.start, b.size) for b in found] == [
        (0, 0, 100),
        (1, 100, 100),
        (2, 200, 50),
    ]
    np.testing.assert_array_equal(np.concatenate([b.reward for b in found]), log.reward)
    np.testing.assert_array_equal(np.concatenate([b.context for b in found]), log.context)


def test_many_arms_make_blocks_smaller(rng) -> None:
    log = LoggedData.from_arrays(rng.integers(2, size=5000), np.zeros(5000), arms=range(2000))
    assert [b.size for b in blocks(log)] == [2097, 2097, 806]


def test_a_log_that_hands_out_fewer_rows_is_refused(rng) -> None:
    log = InBatches(sparse_log(rng, n=250), 50)
    log.n_rows = 300
    with pytest.raises(InvalidParameterError, match="as it says, 300; got 250"):
        ope.evaluate(log, ["a"])


def block_of(reward, start=0):
    n = reward.size
    return Block(0, start, np.arange(start, start + n), reward, None, np.zeros((n, 0)))


def test_samples_hold_rewards_first_and_weigh_the_rest() -> None:
    reward = np.zeros(100_000)
    reward[::200] = 1.0  # 500 rewards
    sampler = RowSampler(2000, 1, 2, balanced=True)
    for start in range(0, 100_000, 10_000):
        sampler.add(block_of(reward[start : start + 10_000], start), np.arange(10_000))
    found = sampler.sample()
    assert found.arm.size == 2000
    paid = found.reward != 0
    assert paid.sum() == 500
    assert found.weight[paid] == pytest.approx(1.0)
    assert found.weight.sum() == pytest.approx(100_000)
    # zeros come from the whole stream: the mean row number is uniform within 5 errors
    zeros = found.arm[~paid]
    assert len(set(zeros)) == zeros.size
    assert abs(zeros.mean() - 50_000) < 5 * 100_000 / np.sqrt(12 * zeros.size)


def test_samples_of_short_logs_are_the_logs() -> None:
    reward = np.r_[np.ones(30), np.zeros(50)]
    for balanced in (True, False):
        sampler = RowSampler(100, 1, 2, balanced)
        sampler.add(block_of(reward), np.arange(80))
        found = sampler.sample()
        assert sorted(found.arm) == list(range(80))
        assert (found.weight == 1).all()
    sampler = RowSampler(40, 1, 2, balanced=True)
    sampler.add(block_of(reward), np.arange(80))
    found = sampler.sample()
    assert (found.arm.size, (found.reward != 0).sum()) == (40, 20)
    assert found.weight.sum() == pytest.approx(80)


def test_bootstrap_counts_are_poisson() -> None:
    draws = _POISSON.astype(float)
    assert draws.mean() == 1.0
    assert draws.var() == pytest.approx(1.0, abs=1e-3)
    for k, p in enumerate([0.36788, 0.36788, 0.18394, 0.06131, 0.01533]):
        assert np.mean(draws == k) == pytest.approx(p, abs=1e-4)
