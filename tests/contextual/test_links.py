"""Links against SciPy, statsmodels, finite differences, and against themselves."""

from __future__ import annotations

import math
import pickle

import numba
import numpy as np
import pytest
from scipy import special, stats
from statsmodels.genmod.families import links as statsmodels_links

from zib import InvalidParameterError, Spec, contextual
from zib.contextual import Cauchit, CLogLog, Identity, Log, Logit, Probit
from zib.testing import LINK_CHECKS, check_link

PROBABILITIES = [Logit(), Probit(), Cauchit(), CLogLog()]
ALL = [*PROBABILITIES, Log(), Identity()]
GRID = np.concatenate([np.linspace(-30, 6, 145), [-8.3, 0.0, 1e-9, -1e-9]])
PEERS = {
    Logit: statsmodels_links.Logit(),
    Probit: statsmodels_links.Probit(),
    Cauchit: statsmodels_links.Cauchy(),
    CLogLog: statsmodels_links.CLogLog(),
    Log: statsmodels_links.Log(),
    Identity: statsmodels_links.Identity(),
}
# (value, log of the value, log of one minus it) by SciPy, accurate in the tails
SCIPY = {
    Logit: (special.expit, special.log_expit, lambda z: special.log_expit(-z)),
    Probit: (special.ndtr, special.log_ndtr, lambda z: special.log_ndtr(-z)),
    Cauchit: (stats.cauchy.cdf, stats.cauchy.logcdf, stats.cauchy.logsf),
    CLogLog: (
        lambda z: -np.expm1(-np.exp(z)),
        lambda z: np.log(-np.expm1(-np.exp(z))),
        lambda z: -np.exp(z),
    ),
}


def on(function, link, grid):
    return np.array([function(link, float(z)) for z in grid])


@pytest.mark.parametrize("check", LINK_CHECKS)
@pytest.mark.parametrize("link", [*ALL, contextual.StandardLink(name="cloglog")], ids=repr)
def test_conforms(link, check) -> None:
    LINK_CHECKS[check](link)


@pytest.mark.parametrize("link", ALL, ids=repr)
def test_value_and_derivative_are_those_of_statsmodels(link) -> None:
    z = np.linspace(-6.0, 1.5, 151)
    peer = PEERS[type(link)]
    assert np.allclose(on(contextual.value, link, z), peer.inverse(z), rtol=1e-10, atol=0)
    wanted = peer.inverse_deriv(z)
    assert np.allclose(on(contextual.derivative, link, z), wanted, rtol=1e-8, atol=0)


@pytest.mark.parametrize("link", PROBABILITIES, ids=repr)
def test_tails_are_those_of_scipy(link) -> None:
    value, log_value, log_complement = SCIPY[type(link)]
    assert np.allclose(on(contextual.value, link, GRID), value(GRID), rtol=1e-12, atol=1e-300)
    assert np.allclose(on(contextual.log_value, link, GRID), log_value(GRID), rtol=1e-11)
    mine = on(contextual.log_complement, link, GRID)
    assert np.allclose(mine, log_complement(GRID), rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("link", PROBABILITIES, ids=repr)
def test_finite_and_accurate_far_out(link) -> None:
    for z in (-1e6, -800.0, -40.0, 40.0, 800.0, 1e6):
        value, slope = contextual.value(link, z), contextual.derivative(link, z)
        assert 0.0 <= value <= 1.0
        assert 0.0 <= slope < math.inf
    assert contextual.value(link, -800.0) < 1e-3 < 0.999 < contextual.value(link, 800.0)
    assert math.isfinite(contextual.log_value(link, -800.0))
    wanted = {Logit: -800.0, CLogLog: -800.0, Probit: float(special.log_ndtr(-800.0))}
    wanted[Cauchit] = math.log(math.atan(1 / 800.0) / math.pi)
    assert contextual.log_value(link, -800.0) == pytest.approx(wanted[type(link)], rel=1e-13)


@pytest.mark.parametrize("link", ALL, ids=repr)
def test_compiled_is_interpreted_to_the_bit(link) -> None:
    names = ("value", "derivative", "log_value", "log_complement")
    functions = [getattr(contextual, name) for name in names]
    value, derivative, log_value, log_complement = functions

    @numba.njit
    def all_of_them(link, z):
        return (
            value(link, z),
            derivative(link, z),
            log_value(link, z),
            log_complement(link, z),
        )

    for z in (*GRID, -800.0, 800.0, 33.3):
        plain = tuple(f(link, float(z)) for f in functions)
        assert np.array_equal(all_of_them(link, float(z)), plain, equal_nan=True), z


@pytest.mark.parametrize("link", ALL, ids=repr)
def test_kappa_is_the_smallest_slope_on_the_ball(link) -> None:
    for radius in (0.0, 0.5, 1.0, 3.0):
        slopes = on(contextual.derivative, link, np.linspace(-radius, radius, 2001))
        assert contextual.kappa(link, radius) == pytest.approx(slopes.min(), rel=1e-12)
    with pytest.raises(InvalidParameterError, match="`radius` must"):
        contextual.kappa(link, -1.0)


def test_links_are_specs() -> None:
    assert Logit() == Logit()
    assert Logit() != Probit()
    assert repr(CLogLog()) == "CLogLog()"
    assert pickle.loads(pickle.dumps(Probit())) == Probit()
    with pytest.raises(TypeError, match="not a registered link"):
        contextual.value(3.0, 1.0)


def test_a_link_that_is_not_one_is_named() -> None:
    class Flat(Spec):
        pass

    contextual.register_link(
        Flat,
        value=lambda link, z: 0.5,
        derivative=lambda link, z: 0.0,
        inverse=lambda link, z: 0.0,
        log_value=lambda link, z: math.log(0.5),
        log_complement=lambda link, z: math.log(0.5),
    )
    with pytest.raises(AssertionError, match="not increasing"):
        check_link(Flat())
