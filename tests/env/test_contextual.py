"""Contextual environments: blocks, means, links, noises, random instances, ids, bad input."""

import json
import math
import pickle

import numpy as np
import pytest
from scipy import stats

from zib import InvalidParameterError
from zib.env import (
    PAPER_SPARSITIES,
    ContextBlock,
    ContextualGLM,
    DisjointContextual,
    DisjointGLM,
    DriftingActions,
    GaussianMAB,
    RandomContextual,
    contextual,
    disjoint,
    drift,
    from_dict,
    list_ids,
    make,
)
from zib.env.contextual import LINK_NAMES, NOISES, sine

CDFS = {
    "probit": stats.norm.cdf,
    "logit": stats.logistic.cdf,
    "cauchit": stats.cauchy.cdf,
    "cloglog": lambda x: -np.expm1(-np.exp(x)),
    "log": lambda x: np.minimum(np.exp(x), 1.0),
}
SMALL = RandomContextual(n_arms=6, dimension=4, sparsity=2)
FIXED = [
    ContextualGLM([0.6, 0.8], [1.0, -0.5], [[1, 0], [0, 1], [0.6, 0.8]], jitter=0.3),
    DisjointGLM([[1.0, 0.5], [2.0, 0.0]], [[-0.5, 1.0], [-1.0, -0.2]], link="logit", sigma=2.0),
    DisjointGLM([[1.0, 0.5]], [[-0.5, 1.0]], intercept=False, noise="exponential"),
]
GENERATORS = [
    SMALL,
    RandomContextual(n_arms=3, dimension=2, sparsity=1, link="log", transform="identity"),
    DisjointContextual(n_arms=4, dimension=3, noise="mixture"),
    DriftingActions(SMALL, low=2, high=5, drift=0.01),
    DriftingActions(FIXED[0], low=1, high=3, drift=0.0),
]
ENVIRONMENTS = [*FIXED, *GENERATORS]
names = [f"{i}-{type(env).__name__}" for i, env in enumerate(ENVIRONMENTS)]


def block_of(env, seed, *sizes):
    """Return the rounds of one run in blocks of these sizes, put together."""
    run = env.instance(np.random.default_rng(seed))
    rng = np.random.default_rng(seed + 1)
    parts = [run.block(rng, n) for n in sizes]
    return ContextBlock(*(np.concatenate(arrays) for arrays in zip(*parts)))


def same(one, two):
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("env", ENVIRONMENTS, ids=names)
def test_shapes_and_attributes(env, seed):
    run = env.instance(np.random.default_rng(seed))
    block = run.block(np.random.default_rng(seed), 7)
    k, (d, q) = env.n_actions, env.n_features
    assert (run.n_arms, run.n_actions, run.n_features) == (env.n_arms, k, (d, q))
    assert (run.link, run.noise, run.sigma) == (env.link, env.noise, env.sigma)
    assert block.arms.shape == block.reward.shape == block.mean.shape == (7, k)
    assert (block.z.shape, block.w.shape, block.count.shape) == ((7, d, k), (7, q, k), (7,))
    assert all(a.flags.carray for a in block)
    assert block.arms.dtype == block.count.dtype == np.int64
    assert {a.dtype for a in (block.z, block.w, block.reward, block.mean)} == {np.dtype("f8")}
    assert block.count.min() >= 1
    assert block.count.max() <= k
    for t, count in enumerate(block.count):
        arms = block.arms[t]
        assert (np.diff(arms[:count]) > 0).all()
        assert 0 <= arms[0] <= arms[count - 1] < env.n_arms
        assert (arms[count:] == -1).all()
        assert np.isneginf(block.mean[t, count:]).all()
        for rest in (block.z[t, :, count:], block.w[t, :, count:], block.reward[t, count:]):
            assert not rest.any()
    assert np.isfinite(block.z).all()
    assert np.isfinite(block.mean.max(axis=1)).all()


@pytest.mark.parametrize("env", ENVIRONMENTS, ids=names)
def test_rounds_do_not_depend_on_the_blocks(env, seed):
    whole = block_of(env, seed, 40)
    assert same(whole, block_of(env, seed, 40))
    assert same(whole, block_of(env, seed, 20, 20))
    assert same(whole, block_of(env, seed, 1, 0, 7, 32))
    assert not same(whole, block_of(env, seed + 1, 40))


@pytest.mark.parametrize("env", ENVIRONMENTS, ids=names)
def test_an_old_block_can_be_overwritten(env, seed):
    run, again = (env.instance(np.random.default_rng(seed)) for _ in range(2))
    rng, other = (np.random.default_rng(seed) for _ in range(2))
    old = run.block(rng, 8)
    again.block(other, 8)
    new = run.block(rng, 5, old)
    assert same(new, again.block(other, 5))
    assert all(np.shares_memory(a, b) for a, b in zip(new, old, strict=True))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("link", LINK_NAMES)
def test_interpreted_is_compiled(link, noise, seed, monkeypatch):
    base = RandomContextual(n_arms=5, dimension=3, sparsity=2, link=link, noise=noise)
    makers = [
        base,
        DisjointContextual(n_arms=3, dimension=2, link=link, noise=noise),
        DriftingActions(base, low=2, high=4, drift=0.1),
    ]
    compiled = [block_of(env, seed, 30) for env in makers]
    monkeypatch.setattr(contextual, "_fill_all", contextual.fill)
    monkeypatch.setattr(disjoint, "_fill_shared", disjoint._fill_disjoint)
    monkeypatch.setattr(drift, "_fill_some", drift._fill_drifting)
    for env, expected in zip(makers, compiled, strict=True):
        assert same(block_of(env, seed, 30), expected)


def test_sine(rng):
    for reach in (1e-9, 0.5, 4.0, 1e3, 1e6, 1e8):
        x = rng.uniform(-reach, reach, 2000)
        found = np.array([sine(v) for v in x])
        np.testing.assert_allclose(found, np.sin(x), rtol=0, atol=3e-16)
    assert sine(0.0) == 0.0
    assert sine(-0.7) == -sine(0.7)


@pytest.mark.parametrize("link", LINK_NAMES)
def test_means_are_those_of_the_model(link, seed):
    env = RandomContextual(n_arms=8, dimension=5, sparsity=3, jitter=0.5, link=link)
    instance = env.instance(np.random.default_rng(seed))
    block = instance.block(np.random.default_rng(seed), 50)
    np.testing.assert_allclose(block.w, np.sin(block.z), rtol=0, atol=3e-16)
    mu = np.einsum("d,ndk->nk", instance.beta, block.z)
    p = CDFS[link](np.einsum("d,ndk->nk", instance.theta, block.w))
    np.testing.assert_allclose(block.mean, p * mu, rtol=1e-12, atol=1e-15)

    disjoint = DisjointContextual(n_arms=4, dimension=3, link=link, effect=1.0)
    instance = disjoint.instance(np.random.default_rng(seed))
    block = instance.block(np.random.default_rng(seed), 50)
    mu = np.einsum("kd,ndk->nk", instance.beta, block.z)
    p = CDFS[link](np.einsum("kd,ndk->nk", instance.theta, block.w))
    np.testing.assert_allclose(block.mean, p * mu, rtol=1e-12, atol=1e-15)


def parts(env, run, block):
    """Return p and mu of every action of `block`, by NumPy and SciPy."""
    if isinstance(run, DisjointGLM):
        beta, theta = run.beta.T[None], run.theta.T[None]
    else:
        glm = getattr(run, "_base", run)
        beta, theta = glm.beta[None, :, None], glm.theta[None, :, None]
    return CDFS[env.link]((theta * block.w).sum(axis=1)), (beta * block.z).sum(axis=1)


NOISE_CDFS = {
    "gaussian": stats.norm.cdf,
    "mixture": lambda x: (
        0.5 * stats.norm.cdf(x, -math.sqrt(0.75), 0.5)
        + 0.5 * stats.norm.cdf(x, math.sqrt(0.75), 0.5)
    ),
    "exponential": lambda x: stats.expon.cdf(x, -1.0),
}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kind", ["common", "disjoint", "drifting"])
def test_rewards_have_the_stated_means(kind, noise, seed):
    base = RandomContextual(n_arms=6, dimension=4, sparsity=3, noise=noise, sigma=1.5, jitter=0.4)
    env = {
        "common": base,
        "disjoint": DisjointContextual(n_arms=3, noise=noise, sigma=1.5),
        "drifting": DriftingActions(base, low=2, high=4),
    }[kind]
    run = env.instance(np.random.default_rng(seed))
    block = run.block(np.random.default_rng(seed + 1), 20_000)
    p, mu = parts(env, run, block)
    paid = block.reward != 0.0
    for k in range(2):
        # Sums of independent centred terms, six standard errors: below 1e-8 each by the normal
        # approximation; 36 such tests in all.
        p_k, mu_k = p[:, k], mu[:, k]
        variance = p_k * (mu_k**2 + 1.5**2) - (p_k * mu_k) ** 2
        off = (block.reward[:, k] - block.mean[:, k]).sum()
        assert abs(off) < 6.0 * math.sqrt(variance.sum())
        assert abs((paid[:, k] - p_k).sum()) < 6.0 * math.sqrt((p_k * (1 - p_k)).sum())
    # Kolmogorov-Smirnov at level 1e-6, nine tests.
    residual = (block.reward - mu)[:, 0][paid[:, 0]] / 1.5
    assert stats.kstest(residual, NOISE_CDFS[noise]).pvalue > 1e-6


@pytest.mark.parametrize("env", ENVIRONMENTS, ids=names)
def test_actions_of_a_round_share_their_luck(env, seed):
    run = env.instance(np.random.default_rng(seed))
    block = run.block(np.random.default_rng(seed), 200)
    p, mu = parts(env, run, block)
    for t, count in enumerate(block.count):
        paid = block.reward[t, :count] != 0.0
        noise = (block.reward - mu)[t, :count][paid]
        assert np.ptp(noise) < 1e-12 if noise.size else True
        # the ones that pay are the likeliest ones
        if paid.any() and not paid.all():
            assert p[t, :count][paid].min() > p[t, :count][~paid].max() - 1e-12


@pytest.mark.parametrize("sparsity", PAPER_SPARSITIES)
def test_the_setting_of_the_paper(sparsity, seed):
    maker = make(f"paper-contextual-gaussian-s{sparsity}-probit-v1")
    assert (maker.n_arms, maker.n_features, maker.sigma) == (100, (10, 10), 1.0)
    assert maker.jitter == pytest.approx(1 / math.sqrt(200))
    env = maker.instance(np.random.default_rng(seed))
    assert env == maker.instance(np.random.default_rng(seed))
    assert env != maker.instance(np.random.default_rng(seed + 1))
    vectors = np.vstack([env.beta, env.theta, env.centres])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0)
    assert (vectors >= 0.0).all()
    assert np.count_nonzero(vectors, axis=1).tolist() == [10] + 101 * [sparsity]
    # Positions are uniform: each is used 100·s/10 times in the mean. Chi-square at level 1e-6
    # (conservative: positions within a row differ); Kolmogorov-Smirnov for the features at 1e-6.
    assert stats.chisquare((env.centres > 0).sum(axis=0)).pvalue > 1e-6
    block = env.block(np.random.default_rng(seed), 20)
    spread = (block.z - env.centres.T) / maker.jitter
    assert stats.kstest(spread.ravel(), stats.norm.cdf).pvalue > 1e-6
    np.testing.assert_array_equal(block.arms, np.tile(np.arange(100), (20, 1)))


def test_entries_are_uniform_before_scaling(seed):
    # With two non-zero entries U, V the ratio min/max is uniform; Kolmogorov-Smirnov at 1e-6.
    maker = RandomContextual(n_arms=2000, dimension=4, sparsity=2)
    centres = np.sort(maker.instance(np.random.default_rng(seed)).centres, axis=1)
    assert stats.kstest(centres[:, -2] / centres[:, -1], stats.uniform.cdf).pvalue > 1e-6


def test_the_log_link_leaves_room_below_one(seed):
    env = RandomContextual(link="log").instance(np.random.default_rng(seed))
    assert (env.theta <= 0.0).all()
    assert np.linalg.norm(env.theta) == pytest.approx(1.0)
    block = env.block(np.random.default_rng(seed), 50)
    p, _ = parts(env, env, block)
    assert 0.2 < p.min() < 0.6
    assert p.max() <= 1.0
    assert np.ptp(p) > 0.2


def test_disjoint_arms_share_the_context(seed):
    maker = DisjointContextual(n_arms=5, dimension=4, effect=0.7)
    env = maker.instance(np.random.default_rng(seed))
    assert env.beta.shape == env.theta.shape == (5, 4)
    for slopes in (env.beta[:, 1:], env.theta[:, 1:]):
        np.testing.assert_allclose(np.linalg.norm(slopes, axis=1), 0.7)
    p = stats.norm.cdf(env.theta[:, 0])
    assert ((p >= 0.1) & (p <= 0.3)).all()
    assert ((env.beta[:, 0] >= 1.0) & (env.beta[:, 0] <= 3.0)).all()
    block = env.block(np.random.default_rng(seed), 500)
    assert (block.z == block.z[:, :, :1]).all()
    assert np.array_equal(block.z, block.w)
    assert (block.z[:, 0] == 1.0).all()
    # Kolmogorov-Smirnov at level 1e-6, twice.
    assert stats.kstest(block.z[:, 1:, 0].ravel(), stats.norm.cdf).pvalue > 1e-6
    bare = DisjointGLM(env.beta, env.theta, intercept=False)
    context = bare.block(np.random.default_rng(seed), 500).z[:, 0, 0]
    assert stats.kstest(context, stats.norm.cdf).pvalue > 1e-6
    assert DisjointContextual(dimension=1).instance(np.random.default_rng(seed)).n_features == (
        1,
        1,
    )


def test_offers_are_uniform(seed):
    n, pool, low, high = 20_000, 12, 2, 6
    env = DriftingActions(RandomContextual(n_arms=pool), low=low, high=high, drift=0.0)
    block = env.instance(np.random.default_rng(seed)).block(np.random.default_rng(seed), n)
    # Chi-square at level 1e-6, twice; the second is conservative, since no item comes twice.
    counts = np.bincount(block.count, minlength=high + 1)[low:]
    assert stats.chisquare(counts).pvalue > 1e-6
    offers = np.bincount(block.arms[block.arms >= 0], minlength=pool)
    assert stats.chisquare(offers).pvalue > 1e-6
    # Pairs, too: given the number on offer, 1 and 2 come together with the known probability.
    both = (block.arms == 1).any(axis=1) & (block.arms == 2).any(axis=1)
    p = block.count * (block.count - 1) / (pool * (pool - 1))
    # Six standard errors, below 1e-8.
    assert abs((both - p).sum()) < 6.0 * math.sqrt((p * (1 - p)).sum())
    one = DriftingActions(SMALL, low=6, high=6).instance(np.random.default_rng(seed))
    assert (one.block(np.random.default_rng(seed), 9).arms == np.arange(6)).all()


def test_centres_drift_in_one_run_only(seed):
    base = RandomContextual(n_arms=50).instance(np.random.default_rng(seed))
    env = DriftingActions(base, low=5, high=10, drift=0.02)
    before = base.centres.copy()
    run = env.instance(np.random.default_rng(seed))
    np.testing.assert_array_equal(run.centres, before)
    first = run.block(np.random.default_rng(seed), 1)
    ids = first.arms[0, : first.count[0]]
    near = first.z[0, :, : first.count[0]].T - before[ids]
    assert np.abs(near).max() < 8.0 * base.jitter
    run.block(np.random.default_rng(seed), 99)
    # 500 independent N(0, 100·drift²): Kolmogorov-Smirnov at level 1e-6.
    moved = (run.centres - before).ravel() / (0.02 * math.sqrt(100))
    assert stats.kstest(moved, stats.norm.cdf).pvalue > 1e-6
    np.testing.assert_array_equal(base.centres, before)
    np.testing.assert_array_equal(env.instance(np.random.default_rng(seed)).centres, before)
    still = DriftingActions(base, low=5, high=10, drift=0.0).instance(np.random.default_rng(seed))
    still.block(np.random.default_rng(seed), 20)
    np.testing.assert_array_equal(still.centres, before)


def test_sizes_of_the_noise():
    for env in (RandomContextual(sigma=2.0), RandomContextual(noise="mixture", sigma=2.0)):
        assert env.component_size() == pytest.approx(2.0)
        assert DriftingActions(env).component_size("subexponential") == pytest.approx(2.0)
    env = DisjointContextual(noise="exponential")
    assert env.component_size() == math.inf
    run = env.instance(np.random.default_rng(0))
    assert run.component_size("subexponential") == pytest.approx(1.43, abs=0.01)


@pytest.mark.parametrize("env", ENVIRONMENTS, ids=names)
def test_plain_data_round_trip(env):
    assert from_dict(json.loads(json.dumps(env.to_dict()))) == env
    assert pickle.loads(pickle.dumps(env)) == env
    rebuilt = type(env)(**env.parameters())
    assert rebuilt == env
    assert hash(rebuilt) == hash(env)
    assert eval(repr(env)) == env
    assert env != ENVIRONMENTS[0] or env is ENVIRONMENTS[0]


def test_a_pickled_run_goes_on(seed):
    run = GENERATORS[3].instance(np.random.default_rng(seed))
    run.block(np.random.default_rng(seed), 10)
    other = pickle.loads(pickle.dumps(run))
    blocks = [r.block(np.random.default_rng(seed), 10) for r in (run, other)]
    assert same(*blocks)


def test_fixed_environments_are_their_own_instance(seed):
    for env in FIXED:
        rng = np.random.default_rng(seed)
        assert env.instance(rng) is env
        assert rng.random() == np.random.default_rng(seed).random()
    for array in (FIXED[0].beta, FIXED[0].centres, FIXED[1].theta):
        assert not array.flags.writeable


def test_ids():
    ids = list_ids()
    paper = [name for name in ids if name.startswith("paper-contextual-")]
    assert len(paper) == 3 * 4 * 5
    env = make("paper-contextual-mixture-s3-cloglog-v1")
    assert env == RandomContextual(sparsity=3, noise="mixture", link="cloglog")
    for noise in NOISES:
        assert make(f"disjoint-{noise}-v1") == DisjointContextual(noise=noise)
        assert make(f"drifting-{noise}-v1") == DriftingActions(RandomContextual(noise=noise))


GLM = {"beta": [1.0, 0.0], "theta": [0.5, 0.5], "centres": [[1.0, 0.0], [0.0, 1.0]]}


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: ContextualGLM(**{**GLM, "theta": [1.0]}), "`theta` must have one entry per entry"),
        (lambda: ContextualGLM(**{**GLM, "beta": 1.0}), "`beta` must be a non-empty one-dim"),
        (lambda: ContextualGLM(**{**GLM, "centres": [1.0]}), "`centres` must be a non-empty two-"),
        (lambda: ContextualGLM(**{**GLM, "centres": [[1.0]]}), "`centres` must have one column"),
        (lambda: ContextualGLM(**{**GLM, "centres": "x"}), "`centres` must hold numbers"),
        (
            lambda: ContextualGLM(**{**GLM, "centres": [[1.0, 2e6]]}),
            "`centres` must lie in [-1e+06, 1e+06]; got 2000000.0 at position 0, 1",
        ),
        (lambda: ContextualGLM(**GLM, link="identity"), "`link` must be one of 'probit', 'logit'"),
        (lambda: ContextualGLM(**GLM, noise="normal"), "`noise` must be one of 'gaussian'"),
        (lambda: ContextualGLM(**GLM, sigma=0.0), "`sigma` must lie in (0, inf); got 0.0"),
        (lambda: ContextualGLM(**GLM, jitter=-1.0), "`jitter` must lie in [0, 1e+06]; got -1.0"),
        (lambda: ContextualGLM(**GLM, transform="cos"), "`transform` must be one of 'sin'"),
        (lambda: FIXED[0].block(None, -1), "`n` must lie in [0, inf]; got -1"),
        (lambda: FIXED[0].block(None, 1, 3), "`out` must be a ContextBlock; got int"),
        (
            lambda: FIXED[0].block(None, 1, FIXED[1].block(np.random.default_rng(0), 1)),
            "`out` must be a block of at least 1 rounds with 3 actions and (2, 2) features",
        ),
        (
            lambda: FIXED[0].block(None, 3, FIXED[0].block(np.random.default_rng(0), 2)),
            "`out` must be a block of at least 3 rounds",
        ),
        (lambda: RandomContextual(n_arms=0), "`n_arms` must lie in [1, inf]; got 0"),
        (lambda: RandomContextual(dimension=1.5), "`dimension` must be a whole number"),
        (lambda: RandomContextual(sparsity=11), "`sparsity` must lie in [1, 10]; got 11"),
        (lambda: RandomContextual(transform="cos"), "`transform` must be one of"),
        (lambda: RandomContextual(link="logistic"), "`link` must be one of"),
        (
            lambda: DisjointGLM([[1.0, 2.0]], [[1.0]]),
            "`theta` must have the shape of `beta` (1, 2); got (1, 1)",
        ),
        (lambda: DisjointGLM([[math.nan]], [[1.0]]), "`beta` must lie in (-inf, inf); got nan"),
        (lambda: DisjointContextual(probs=(0.0, 0.5)), "`probs` must lie in (0, 1); got 0.0"),
        (lambda: DisjointContextual(probs=(0.4, 0.3)), "`probs` must be a pair (low, high)"),
        (lambda: DisjointContextual(effect=-0.1), "`effect` must lie in [0, inf); got -0.1"),
        (lambda: DriftingActions(GaussianMAB([1.0], [0.5], 1.0)), "`base` must be a ContextualGLM"),
        (lambda: DriftingActions(SMALL), "`high` must lie in [1, 6]; got 20"),
        (lambda: DriftingActions(SMALL, low=4, high=3), "`low` must lie in [1, 3]; got 4"),
        (lambda: DriftingActions(SMALL, 1, 2, drift=2.0), "`drift` must lie in [0, 1]; got 2.0"),
        (lambda: from_dict({"environment": "DriftingActions"}), "`data` must hold the parameters"),
    ],
)
def test_bad_input(build, words):
    with pytest.raises(InvalidParameterError) as caught:
        build()
    assert words in str(caught.value)
