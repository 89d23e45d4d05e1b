"""Moments of pieces against those of the whole."""

import numpy as np
import pytest
from scipy import stats

from zib.stats.moments import JointMoments, Moments

DATA = 1e6 + np.random.default_rng(0).gamma(2.0, 3.0, (1_000, 3))
CUTS = ([500], [1, 2, 990], [])


def expected(x, k):
    return ((x - x.mean(axis=0)) ** k).sum(axis=0)


@pytest.mark.parametrize("cuts", CUTS)
def test_pieces_and_merged_accumulators_have_the_moments_of_the_whole(cuts):
    added, merged = Moments(3, 4), Moments(3, 4)
    for part in np.split(DATA, cuts):
        added.add(part)
        own = Moments(3, 4)
        own.add(part)
        merged.merge(own)
    for found in (added, merged):
        assert (found.count == 1_000).all()
        np.testing.assert_allclose(found.mean, DATA.mean(axis=0), rtol=1e-14)
        for name, k in (("m2", 2), ("m3", 3), ("m4", 4)):
            np.testing.assert_allclose(getattr(found, name), expected(DATA, k), rtol=1e-8)
        np.testing.assert_allclose(found.standard_error(), stats.sem(DATA), rtol=1e-8)


@pytest.mark.parametrize("cuts", CUTS)
def test_groups_have_the_moments_of_their_rows(cuts):
    x = DATA[:, 0]
    group = np.random.default_rng(1).integers(0, 4, x.size)
    moments = Moments(6, 4)
    for g, part in zip(np.split(group, cuts), np.split(x, cuts), strict=True):
        moments.add_groups(g, part)
    for k in range(4):
        own = x[group == k]
        assert moments.count[k] == own.size
        assert moments.mean[k] == pytest.approx(own.mean(), rel=1e-14)
        for name, order in (("m2", 2), ("m3", 3), ("m4", 4)):
            assert getattr(moments, name)[k] == pytest.approx(expected(own, order), rel=1e-8)
    assert moments.count[4] == moments.count[5] == 0
    n, mean, m2, m3 = moments.pooled()
    assert (n, mean) == (x.size, pytest.approx(x.mean(), rel=1e-14))
    assert (m2, m3) == pytest.approx((expected(x, 2), expected(x, 3)), rel=1e-8)


def test_nothing_seen_has_no_variance():
    moments = Moments(2)
    moments.add(np.empty((0, 2)))
    assert moments.pooled()[0] == 0
    assert np.isnan(moments.variance()).all()
    moments.add(np.ones((1, 2)))
    assert np.isnan(moments.standard_error()).all()


@pytest.mark.parametrize("cuts", CUTS)
def test_joint_moments_along_a_direction(cuts):
    joint = JointMoments(3)
    for part in np.split(DATA, cuts):
        joint.add(part)
    direction = np.array([1.0, -2.0, 0.5])
    one = DATA @ direction
    variance, third = joint.along(direction)
    assert variance == pytest.approx(one.var(), rel=1e-8)
    assert third == pytest.approx(expected(one, 3) / one.size, rel=1e-6)
    assert joint.first(1).along(np.ones(1))[0] == pytest.approx(DATA[:, 0].var(), rel=1e-8)
