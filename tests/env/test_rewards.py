"""Laws: closed-form moments, goodness of fit, sizes by their definition, plain data, bad input."""

import json
import math
import pickle
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats

from zib import InvalidParameterError
from zib.env import (
    Exponential,
    Gamma,
    Gaussian,
    GaussianMixture,
    Law,
    LogNormal,
    Lomax,
    Pareto,
    QuantileTable,
    StudentT,
    Uniform,
    ZeroInflated,
    law_from_dict,
)

TABLE = QuantileTable((0.0, 0.3, 0.9, 1.0), (-1.0, 0.5, 2.0, 6.0))


def _mixture_cdf(x):
    return 0.5 * stats.norm.cdf(x, 1.0, 0.5) + 0.5 * stats.norm.cdf(x, 3.0, 0.5)


CONTINUOUS = [
    (Gaussian(-1.5, 0.7), stats.norm(-1.5, 0.7).cdf),
    (GaussianMixture(2.0, 0.5), _mixture_cdf),
    (Exponential(2.5), stats.expon(scale=2.5).cdf),
    (Gamma(3.0, 2.5), stats.gamma(2.5, scale=1.2).cdf),
    (LogNormal(0.3, 0.8), stats.lognorm(s=0.8, scale=math.exp(0.3)).cdf),
    (StudentT(1.0, 2.0, 2.5), stats.t(2.5, 1.0, 2.0).cdf),
    (Pareto(3.0, 2.5), stats.pareto(2.5, scale=1.8).cdf),
    (Lomax(3.0, 2.5), stats.lomax(2.5, scale=4.5).cdf),
    (Uniform(-1.0, 3.0), stats.uniform(-1.0, 4.0).cdf),
    (TABLE, lambda x: np.interp(x, TABLE.values, TABLE.levels)),
]
LAWS = [law for law, _ in CONTINUOUS]
ALL = [*LAWS, ZeroInflated(Gaussian(2.0, 0.5), 0.3), ZeroInflated(Exponential(2.0), 0.01, 1.0)]
names = [type(law).__name__ for law in LAWS]


@pytest.mark.parametrize(("law", "cdf"), CONTINUOUS, ids=names)
def test_draws_follow_the_law(law, cdf, rng):
    # Kolmogorov-Smirnov at level 1e-5: each of the 10 cases fails by chance with that probability.
    assert stats.kstest(law.sample(rng, 20_000), cdf).pvalue > 1e-5


WITH_QUANTILES = [pair for pair in CONTINUOUS if hasattr(pair[0], "_quantile")]


@pytest.mark.parametrize(
    ("law", "cdf"), WITH_QUANTILES, ids=[type(law).__name__ for law, _ in WITH_QUANTILES]
)
def test_quantiles_are_those_of_the_law(law, cdf):
    levels = np.linspace(0.001, 0.999, 21)
    places = law._quantile(levels)
    assert law._cdf(places) == pytest.approx(levels, rel=1e-9)
    assert cdf(places) == pytest.approx(levels, rel=1e-9)


@pytest.mark.parametrize("prob", [0.0, 0.001, 0.3, 0.97, 1.0])
@pytest.mark.parametrize("inflated", [0.0, -2.0])
def test_zero_inflation_counts_and_values(prob, inflated, rng):
    law = ZeroInflated(Gaussian(2.0, 0.5), prob, inflated)
    draws = np.concatenate([law.sample(rng, 4096) for _ in range(10)])
    paid = draws[draws != inflated]
    # Exact binomial test, level 1e-5 for each of the 10 cases (certain for prob 0 and 1).
    assert stats.binomtest(paid.size, draws.size, prob).pvalue > 1e-5
    if paid.size > 20:
        assert stats.kstest(paid, stats.norm(2.0, 0.5).cdf).pvalue > 1e-5
    # Payments are independent of each other: the number of neighbouring pairs that both pay.
    if prob == 0.3:
        pairs = (draws[1::2] != inflated) * 2 + (draws[::2] != inflated)
        expected = np.array([0.49, 0.21, 0.21, 0.09]) * pairs.size
        assert stats.chisquare(np.bincount(pairs, minlength=4), expected).pvalue > 1e-5


def test_moments_in_closed_form():
    assert Gaussian(2.0, 0.5).variance == 0.25
    assert GaussianMixture(2.0, 0.5, offset=2.0).variance == 4.25
    assert Exponential(3.0).variance == 9.0
    frozen = stats.lognorm(s=0.8, scale=math.exp(0.3))
    assert LogNormal(0.3, 0.8).mean == pytest.approx(frozen.mean(), rel=1e-12)
    assert LogNormal(0.3, 0.8).variance == pytest.approx(frozen.var(), rel=1e-12)
    assert LogNormal.from_mean(2.0, 0.8).mean == pytest.approx(2.0, rel=1e-14)
    assert StudentT(1.0, 2.0, 5.0).variance == pytest.approx(stats.t(5, 1, 2).var(), rel=1e-12)
    assert StudentT(1.0, 2.0, 2.0).variance == math.inf
    assert Pareto(3.0, 2.5).mean == pytest.approx(stats.pareto(2.5, scale=1.8).mean(), rel=1e-12)
    assert Pareto(3.0, 2.5).variance == pytest.approx(stats.pareto(2.5, scale=1.8).var())
    assert Pareto(3.0, 1.5).variance == math.inf
    assert Lomax(3.0, 2.5).variance == pytest.approx(stats.lomax(2.5, scale=4.5).var())
    assert Lomax(3.0, 1.5).variance == math.inf
    # Uniform pieces: E X = sum of weight times midpoint.
    assert TABLE.mean == pytest.approx(0.3 * -0.25 + 0.6 * 1.25 + 0.1 * 4.0)
    second = sum(
        w * (a * a + a * b + b * b) / 3
        for w, a, b in [(0.3, -1.0, 0.5), (0.6, 0.5, 2.0), (0.1, 2.0, 6.0)]
    )
    assert TABLE.variance == pytest.approx(second - TABLE.mean**2)
    assert TABLE.quantile(0.9) == 2.0


@pytest.mark.parametrize("order", [0.5, 1.0, 1.3, 2.0])
def test_absolute_moments(order):
    cases = [
        (Gaussian(-1.5, 0.7), stats.norm(-1.5, 0.7), (-np.inf, np.inf)),
        (Exponential(2.5), stats.expon(scale=2.5), (0, np.inf)),
        (LogNormal(0.3, 0.8), stats.lognorm(s=0.8, scale=math.exp(0.3)), (0, np.inf)),
        (StudentT(1.0, 2.0, 6.5), stats.t(6.5, 1.0, 2.0), (-np.inf, np.inf)),
        (Pareto(3.0, 6.5), stats.pareto(6.5, scale=3 * 5.5 / 6.5), (3 * 5.5 / 6.5, np.inf)),
        (Lomax(3.0, 6.5), stats.lomax(6.5, scale=16.5), (0, np.inf)),
        (Uniform(-1.0, 3.0), stats.uniform(-1.0, 4.0), (-1.0, 3.0)),
    ]

    def integrand(x, frozen):
        return abs(x) ** order * frozen.pdf(x)

    for law, frozen, (low, high) in cases:
        edges = [low, 0.0, high] if low < 0 else [low, high]
        want = sum(
            integrate.quad(integrand, a, b, args=(frozen,), limit=400)[0]
            for a, b in pairwise(edges)
        )
        assert law.moment(order) == pytest.approx(want, rel=1e-6), law
    mixture = GaussianMixture(2.0, 0.5)
    assert mixture.moment(2.0) == pytest.approx(4.0 + 1.25, rel=1e-9)
    reward = ZeroInflated(Exponential(2.0), 0.25, inflated=-3.0)
    assert reward.moment(order) == pytest.approx(
        0.75 * 3.0**order + 0.25 * Exponential(2.0).moment(order)
    )


def test_moments_that_do_not_exist_are_infinite():
    assert StudentT(0.0, 1.0, 1.5).moment(1.5) == math.inf
    assert Pareto(1.0, 1.5).moment(1.5) == math.inf
    assert ZeroInflated(Pareto(1.0, 1.5), 0.1).moment(2.0) == math.inf
    # The two ways to a Student moment agree where both exist.
    near_zero = StudentT(1e-12, 1.0, 1.8).moment(1.5)
    assert near_zero == pytest.approx(StudentT(0.0, 1.0, 1.8).moment(1.5), rel=1e-6)


@pytest.mark.parametrize("law", [law for law in ALL if math.isfinite(law.variance)], ids=repr)
def test_sample_mean_agrees_with_mean(law, rng):
    n = 40_000
    draws = law.sample(rng, n)
    # Five standard errors: error probability about 6e-7 per case for the light tails; Pareto and
    # Student with 2.5 degrees of freedom have slower tails, hence the wider allowance of 12.
    allowance = 12 if isinstance(law, (StudentT, Pareto, Lomax)) else 5
    assert abs(draws.mean() - law.mean) < allowance * math.sqrt(law.variance / n)


@pytest.mark.parametrize("law", ALL, ids=repr)
@pytest.mark.parametrize("n", [0, 1, 2, 4096])
def test_block_sizes(law, n, seed):
    first = law.sample(np.random.default_rng(seed), n)
    again = law.sample(np.random.default_rng(seed), n)
    assert first.shape == (n,)
    assert first.dtype == np.float64
    assert first.flags.c_contiguous
    assert first.flags.writeable
    np.testing.assert_array_equal(first, again)
    assert np.isfinite(first).all()


def _log_mgf_excess(law, size, s, draws):
    """Return log E exp(s(X − EX)) − s² size²/2, by quadrature over the quantile function."""
    return math.log(np.mean(np.exp(s * (draws - law.mean)))) - s * s * size * size / 2


@pytest.mark.parametrize(
    ("law", "frozen"),
    [
        (GaussianMixture(2.0, 0.5), None),
        (TABLE, None),
        (Exponential(2.0), stats.expon(scale=2.0)),
    ],
    ids=["mixture", "table", "exponential"],
)
def test_sizes_satisfy_their_definition(law, frozen):
    levels = (np.arange(200_000) + 0.5) / 200_000
    if isinstance(law, QuantileTable):
        points = np.interp(levels, law.levels, law.values)
    elif frozen is None:
        half = stats.norm.ppf(levels[::2]) * 0.5
        points = np.concatenate([half + 1.0, half + 3.0])
    else:
        points = frozen.ppf(levels)
    if isinstance(law, Exponential):
        assert law.subgaussian_size == math.inf
        lam = law.subexponential_size
        grid = np.linspace(-1, 1, 41) / lam
        # The mean of exp over midpoints falls short of the exact one in the open tail.
        exact = [-math.log1p(-s * 2.0) - s * 2.0 - s * s * lam * lam / 2 for s in grid if s]
        assert max(exact) == pytest.approx(0.0, abs=1e-9)
    else:
        size = law.subgaussian_size
        assert law.subexponential_size == size
        grid = np.linspace(-8, 8, 161)
        worst = max(_log_mgf_excess(law, size, s, points) / (s * s) for s in grid if s)
        assert worst < 1e-4
        # and no smaller size would do
        worst = max(_log_mgf_excess(law, 0.98 * size, s, points) / (s * s) for s in grid if s)
        assert worst > 0


def test_sizes_of_rewards():
    plain = Gaussian(2.0, 0.5)
    reward = ZeroInflated(plain, 0.3)
    assert reward.subgaussian_size**2 >= reward.variance
    assert ZeroInflated(plain, 1.0).subgaussian_size == pytest.approx(0.5)
    assert ZeroInflated(plain, 0.3, inflated=2.0).subgaussian_size < reward.subgaussian_size
    assert ZeroInflated(Exponential(2.0), 0.3).subgaussian_size == math.inf
    assert ZeroInflated(Exponential(2.0), 0.3).subexponential_size >= 2.0
    for heavy in (LogNormal(0.0, 1.0), StudentT(0.0, 1.0, 3.0), Pareto(1.0, 3.0), Lomax(1.0, 3.0)):
        assert heavy.subgaussian_size == heavy.subexponential_size == math.inf
        assert ZeroInflated(heavy, 0.3).size("subexponential") == math.inf
        assert ZeroInflated(heavy, 0.0).size("subexponential") == 0.0


@pytest.mark.parametrize("law", ALL, ids=repr)
def test_plain_data_round_trip(law):
    data = json.loads(json.dumps(law.to_dict()))
    assert law_from_dict(data) == law
    assert pickle.loads(pickle.dumps(law)) == law
    assert type(law)(**law.parameters()) == law
    assert hash(type(law)(**law.parameters())) == hash(law)
    assert repr(law).replace("<", "").startswith(type(law).__name__)


@dataclass(frozen=True)
class Coin(Law):
    """A law of a user, as a dataclass."""

    prize: float

    def _draw(self, rng, n):
        return self.prize * (rng.random(n) < 0.5)

    mean = property(lambda self: self.prize / 2)
    variance = property(lambda self: self.prize**2 / 4)

    def moment(self, order):
        return self.prize**order / 2


def test_a_law_may_be_a_dataclass():
    law = ZeroInflated(Coin(2.0), 0.5)
    assert law.mean == 0.5
    assert law_from_dict(json.loads(json.dumps(law.to_dict()))) == law
    assert pickle.loads(pickle.dumps(law)) == law


def test_laws_cannot_be_changed():
    with pytest.raises(AttributeError):
        Gaussian(0.0, 1.0).mean = 2.0


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Gaussian(0.0, 0.0), "`sigma` must lie in (0, inf); got 0.0"),
        (lambda: Gaussian(math.nan, 1.0), "`mean` must be a finite number"),
        (lambda: GaussianMixture(0.0, 1.0, -1.0), "`offset` must lie in [0, inf); got -1.0"),
        (lambda: Exponential(-1.0), "`mean` must lie in (0, inf); got -1.0"),
        (lambda: LogNormal(0.0, 0.0), "`log_sd` must lie in (0, 26]; got 0.0"),
        (lambda: LogNormal.from_mean(-1.0, 1.0), "`mean` must lie in (0, inf); got -1.0"),
        (lambda: StudentT(0.0, 1.0, 1.0), "`df` must lie in (1, inf); got 1.0"),
        (lambda: Pareto(1.0, 1.0), "`shape` must lie in (1, inf); got 1.0"),
        (lambda: ZeroInflated(Gaussian(0.0, 1.0), 1.5), "`prob` must lie in [0, 1]; got 1.5"),
        (lambda: ZeroInflated(3.0, 0.5), "`law` must be a law such as Gaussian; got 3.0"),
        (lambda: QuantileTable((0.0, 0.5), (0.0, 1.0)), "`levels` must increase strictly"),
        (lambda: QuantileTable((0.0, 1.0), (1.0, 1.0)), "`values` must be 2 strictly increasing"),
        (lambda: law_from_dict({"kind": "Cauchy"}), "`kind` in `data` must be one of"),
        (lambda: law_from_dict({"kind": "Gaussian", "mu": 1.0}), "`data` must hold the parameters"),
        (lambda: Gaussian(0.0, 1.0).sample(None, -1), "`n` must lie in [0, inf]; got -1"),
        (lambda: Gaussian(0.0, 1.0).moment(-1.0), "`order` must lie in [0, inf); got -1.0"),
        (lambda: Gaussian(0.0, 1.0).size("big"), "`kind` must be one of"),
    ],
)
def test_bad_input(build, words):
    with pytest.raises(InvalidParameterError) as caught:
        build()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
