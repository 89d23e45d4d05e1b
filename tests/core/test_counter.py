"""Streams from counters: known answers, laws, positions, and the same numbers when compiled."""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest
from scipy import stats

from zib.core import counter
from zib.core.cache import OPTIONS

WORD = counter.WORD


# From the file of known answers that the authors of Philox publish with Random123.
@pytest.mark.parametrize(
    ("words", "key", "answer"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((WORD,) * 4, (WORD,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_answers(words, key, answer) -> None:
    assert counter.philox(*words, *key) == answer


def _fill(first_key, second_key, replication, lane, used, out):
    s = counter.opened(first_key, second_key, replication, lane, used)
    for i in range(out.shape[0]):
        out[i, 0] = s.random()
        out[i, 1] = s.standard_normal()
        out[i, 2] = s.standard_gamma(0.3)
        out[i, 3] = s.standard_gamma(5.0)
        out[i, 4] = s.beta(0.5, 0.2)
        out[i, 5] = s.beta(3.0, 40.0)
        out[i, 6] = s.standard_t(4.0)
        out[i, 7] = s.standard_exponential()


LAWS = [
    stats.uniform(),
    stats.norm(),
    stats.gamma(0.3),
    stats.gamma(5.0),
    stats.beta(0.5, 0.2),
    stats.beta(3.0, 40.0),
    stats.t(4.0),
    stats.expon(),
]


def test_draws_follow_their_laws_and_are_the_same_when_compiled(seed: int) -> None:
    fill = numba.njit(**OPTIONS)(_fill)
    used, draws = np.zeros(1, dtype=np.int64), np.empty((100_000, len(LAWS)))
    fill(*counter.key_of(seed), 3, 1, used, draws)
    again, few = np.zeros(1, dtype=np.int64), np.empty((200, len(LAWS)))
    _fill(*counter.key_of(seed), 3, 1, again, few)
    np.testing.assert_array_equal(few, draws[:200])
    # Kolmogorov-Smirnov at level 1e-6 for each of eight laws
    for column, law in zip(draws.T, LAWS, strict=True):
        assert stats.kstest(column, law.cdf).pvalue > 1e-6
    # neighbouring draws of a row, and of a column, have nothing to do with each other (|r| < 6 sd)
    ranks = stats.rankdata(draws, axis=0)
    for a, b in ((ranks[:, 0], ranks[:, 1]), (ranks[:-1, 1], ranks[1:, 1])):
        assert abs(np.corrcoef(a, b)[0, 1]) < 6.0 / math.sqrt(len(draws))


def test_streams_differ_in_seed_replication_and_lane() -> None:
    names = [
        (seed, replication, lane)
        for seed in (0, 1)
        for replication in (0, 1, 2**32, 2**47)
        for lane in (0, 1, 2, 70_000)
    ]
    found = {tuple(counter.stream(*name).random() for _ in range(3)) for name in names}
    assert len(found) == len(names)


def test_replications_that_follow_each_other_are_independent(seed: int) -> None:
    first = np.array([counter.stream(seed, r, 0).random() for r in range(4_000)])
    # uniform over replications (level 1e-6), and no correlation between neighbours (6 sd)
    assert stats.kstest(first, "uniform").pvalue > 1e-6
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 6.0 / math.sqrt(4_000)


def test_a_stream_goes_on_where_its_position_says() -> None:
    one = counter.stream(5, 7, 2)
    whole = [one.random() for _ in range(9)]
    two = counter.stream(5, 7, 2)
    two.used[0] = 4
    assert [two.random() for _ in range(5)] == whole[4:]


def test_small_shapes_do_not_underflow() -> None:
    s = counter.stream(1, 2, 3)
    draws = np.array([s.beta(1e-3, 1e-3) for _ in range(500)])
    assert np.isfinite(draws).all()
    # half of them are next to 1 (a binomial of 500 is off by 0.12 with probability below 1e-7)
    assert abs((draws > 0.5).mean() - 0.5) < 0.12
    assert s.standard_gamma(0.0) == 0.0
