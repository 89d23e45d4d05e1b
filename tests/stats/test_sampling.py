"""Hashes of rows, folds and samples drawn with them."""

import numpy as np
import pytest
from scipy import stats

from zib.stats import sampling
from zib.stats.sampling import SmallestHashes, folds_of, row_hashes


def test_hashes_are_different_and_look_uniform() -> None:
    key = row_hashes(0, 1, 0, 200_000)
    assert np.unique(key).size == key.size
    # rejects a uniform sample with probability 1e-4
    assert stats.kstest(key / 2.0**64, "uniform").pvalue > 1e-4
    for seed, salt in ((1, 1), (0, 2)):
        other = row_hashes(seed, salt, 0, 200_000) / 2.0**64
        # 5 standard errors of a correlation of independent numbers: error probability 6e-7
        assert abs(np.corrcoef(key / 2.0**64, other)[0, 1]) < 5 / np.sqrt(200_000)


def test_folds_are_even_and_belong_to_rows() -> None:
    whole = folds_of(3, 0, 100_000, 5)
    np.testing.assert_array_equal(whole[40_000:50_000], folds_of(3, 40_000, 10_000, 5))
    # 5 standard deviations of a binomial count
    assert np.abs(np.bincount(whole) - 20_000).max() < 5 * np.sqrt(100_000 * 0.16)
    pairs = np.bincount(whole[:-1] * 5 + whole[1:], minlength=25)
    assert np.abs(pairs - 4000).max() < 5 * np.sqrt(100_000 * 0.04 * 0.96)
    other = folds_of(4, 0, 100_000, 5)
    assert 0.18 < np.mean(whole == other) < 0.22
    bits = row_hashes(0, 1, 0, 50_000)
    ones = [int(((bits >> np.uint64(b)) & np.uint64(1)).sum()) for b in range(64)]
    assert np.abs(np.array(ones) - 25_000).max() < 5 * np.sqrt(50_000) / 2


@pytest.mark.parametrize("n_groups", [1, 4])
@pytest.mark.parametrize("piece", [17, 1_000, 20_000])
def test_samples_are_the_smallest_hashes_of_each_group(monkeypatch, n_groups, piece) -> None:
    monkeypatch.setattr(sampling, "ROOM", 100)  # cut back often
    n, most = 20_000, 50
    key = row_hashes(3, 7, 0, n)
    group = np.random.default_rng(0).integers(0, n_groups, n)
    value = np.arange(n) * 2.0
    sample = SmallestHashes(most, n_groups)
    for start in range(0, n, piece):
        rows = slice(start, start + piece)
        of = None if n_groups == 1 else group[rows]
        sample.add(key[rows], np.arange(n)[rows], value[rows], group=of)
    np.testing.assert_array_equal(sample.seen, np.bincount(group))
    wanted = [
        own[np.argsort(key[own])][:most] for own in map(np.flatnonzero, np.eye(n_groups)[group].T)
    ]
    for (row, x), expected in zip(sample.groups(), wanted, strict=True):
        np.testing.assert_array_equal(row, expected)
        np.testing.assert_array_equal(x, value[expected])
    np.testing.assert_array_equal(sample.rows()[0], np.concatenate(wanted))


def test_nothing_offered_gives_nothing() -> None:
    assert SmallestHashes(5).rows() == ()
    assert SmallestHashes(5, 2).groups() == [(), ()]
