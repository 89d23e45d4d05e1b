"""ZIKLUCB, ZIIMED and ZIPosterior against SciPy, brute force and each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, special, stats
from tests.theory import oracles

import zib
from zib import InvalidParameterError, mab, theory
from zib.core import kernel
from zib.core.entry import interpreted
from zib.experiments import limit
from zib.mab import ZIIMED, ZIKLUCB, ZIAdaptive, ZIPosterior
from zib.mab.posterior import digamma

FAMILIES = {
    "known sigma": {"sigma": 0.7},
    "unknown sigma": {},
    "exponential": {"family": "exponential"},
    "gamma": {"family": "gamma", "shape": 2.0},
    "lognormal": {"family": "lognormal"},
}


def histories(seed: int, n_arms: int = 4, rounds: int = 1200) -> list[tuple[int, float]]:
    rng = np.random.default_rng(seed)
    arm = np.concatenate([np.arange(n_arms), rng.integers(0, n_arms, rounds - n_arms)])
    pays = rng.random(rounds) < np.array([0.05, 0.2, 0.5, 0.9])[arm]
    reward = np.where(pays, rng.lognormal(0.3 * arm, 0.6), 0.0)
    return list(zip(arm.tolist(), reward.tolist()))


def played(spec: object, rows: list[tuple[int, float]], n_arms: int = 4) -> zib.Bandit:
    bandit = zib.Bandit(spec, n_arms=n_arms, seed=1)
    bandit.update_many([a for a, _ in rows], [r for _, r in rows])
    return bandit


def statistics(rows: list[tuple[int, float]], arm: int) -> tuple[int, np.ndarray]:
    rewards = np.array([r for a, r in rows if a == arm])
    return len(rewards), rewards[rewards != 0]


def upper(options: dict, n: int, x: np.ndarray, level: float) -> float:
    """The public bound, which has tests of its own, from raw rewards."""
    family = options.get("family", "gaussian")
    if family == "lognormal":
        logs = np.log(x)
        return theory.joint_kl_upper(
            n,
            len(x),
            logs.sum(),
            level=level,
            family=family,
            spread=((logs - logs.mean()) ** 2).sum(),
        )
    if family != "gaussian":
        return theory.joint_kl_upper(
            n, len(x), x.sum(), level=level, family="gamma", shape=options.get("shape", 1.0)
        )
    if "sigma" in options:
        return theory.joint_kl_upper(n, len(x), x.sum(), options["sigma"], level)
    return theory.joint_kl_upper(
        n, len(x), x.sum(), level=level, spread=((x - x.mean()) ** 2).sum()
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("delta", [None, 1e-3])
def test_kl_indices_are_the_public_bound(family: str, delta: float | None) -> None:
    options = FAMILIES[family]
    rows = histories(3)
    with interpreted():  # compiled code gives the same bits, which the conformance suite checks
        found = played(ZIKLUCB(delta=delta, c=2.0, **options), rows).indices()
    log_t = math.log(len(rows) + 1)
    level = log_t + 2.0 * math.log(log_t) if delta is None else -math.log(delta)
    for arm in range(4):
        n, x = statistics(rows, arm)
        assert found[arm] == pytest.approx(upper(options, n, x, level), rel=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
def test_imed_indices_are_divergences_plus_log(family: str) -> None:
    options = FAMILIES[family]
    rows = histories(4)
    with interpreted():
        found = played(ZIIMED(**options), rows).indices()
    stats_of = [statistics(rows, arm) for arm in range(4)]

    def mean(x: np.ndarray) -> float:
        if family == "lognormal":
            return math.exp(np.log(x).mean() + np.log(x).var() / 2)
        return float(x.mean())

    best = max(mean(x) * len(x) / n for n, x in stats_of)
    for arm, (n, x) in enumerate(stats_of):
        p = len(x) / n
        if family == "lognormal":
            d = theory.divergence_to(
                np.log(x).mean(), p, best, family="lognormal", spread=np.log(x).std()
            )
        elif family == "known sigma":
            d = theory.divergence_to(x.mean(), p, best, 0.7)
        elif family == "unknown sigma":
            d = theory.divergence_to(x.mean(), p, best, spread=x.std())
        else:
            shape = options.get("shape", 1.0)
            d = theory.divergence_to(x.mean(), p, best, family="gamma", shape=shape)
        assert found[arm] == pytest.approx(-(n * d + math.log(n)), rel=1e-9)


def kl(p: float, q: float) -> float:
    return float(special.rel_entr(p, q) + special.rel_entr(1 - p, 1 - q))


def test_new_divergences_are_the_least_over_both_parameters() -> None:
    """Brute force: for each mu' the cheapest p', then the best mu' by a bounded search."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        p = float(rng.choice([0.005, 0.05, 0.3, 0.8]))
        mean, spread, shape = rng.uniform(0.3, 4.0), rng.uniform(0.3, 2.0), rng.uniform(0.3, 5.0)
        target = mean * p * (1 + rng.exponential(0.7))

        def least(div, mean=mean, p=p, target=target) -> float:
            def cost(m: float) -> float:
                q = target / m
                return kl(p, max(q, p)) + p * div(m) if q < 1 else 1e3 + q

            top = max(mean, target / p) * 1.5
            grid = np.linspace(max(mean, target) * (1 + 1e-9), top, 400)
            at = int(np.argmin([cost(m) for m in grid]))
            low, high = grid[max(at - 1, 0)], grid[min(at + 1, 399)]
            found = optimize.minimize_scalar(
                cost, bounds=(low, high), method="bounded", options={"xatol": 1e-12}
            )
            return float(found.fun)

        unknown = least(lambda m, s=spread, mu=mean: 0.5 * math.log1p(((m - mu) / s) ** 2))
        assert theory.divergence_to(mean, p, target, spread=spread) == pytest.approx(
            unknown, rel=1e-6
        )
        gamma = least(lambda m, k=shape, mu=mean: k * (mu / m - 1 - math.log(mu / m)))
        assert theory.divergence_to(mean, p, target, family="gamma", shape=shape) == pytest.approx(
            gamma, rel=1e-6
        )


def test_lognormal_divergence_is_the_least() -> None:
    rng = np.random.default_rng(1)
    for _ in range(12):
        p, m, s = float(rng.choice([0.02, 0.3, 0.8])), rng.normal(), float(rng.choice([0.3, 1.0]))
        target = p * math.exp(m + s * s / 2) * (1 + rng.exponential(0.7))

        def cost(v, p=p, m=m, s=s, target=target) -> float:
            place, scale = v[0], math.exp(v[1])
            q = target / math.exp(min(place + scale**2 / 2, 500))
            if q >= 1:
                return 1e3 + q
            gauss = math.log(scale / s) + (s * s + (m - place) ** 2) / (2 * scale**2) - 0.5
            return kl(p, max(q, p)) + p * gauss

        best = min(
            optimize.minimize(
                cost, [m + a, math.log(s) + b], method="Nelder-Mead",
                options={"xatol": 1e-9, "fatol": 1e-13, "maxiter": 5000},
            ).fun
            for a in (0.1, 0.6) for b in (0.0, 0.5)
        )  # fmt: skip
        found = theory.divergence_to(m, p, target, family="lognormal", spread=s)
        assert found == pytest.approx(best, rel=1e-6)


LAZY = [
    ZIKLUCB(),
    ZIKLUCB(sigma=0.7),
    ZIIMED(),
    ZIIMED(sigma=0.7),
    ZIKLUCB(family="lognormal"),
    ZIIMED(family="exponential"),
]


@pytest.mark.parametrize("spec", LAZY)
def test_lazy_scores_choose_the_exact_maximiser(spec: object) -> None:
    """What is kept only bounds the indices, and may be handed out where it settles the choice."""
    env = zib.env.ExponentialMAB(means=[1.0, 1.2, 0.8, 3.0], probs=[0.3, 0.25, 0.4, 0.02])
    state = kernel.init(spec, 4)
    rng = np.random.default_rng(5)
    lazy, exact = np.zeros(4), np.zeros(4)
    saved = 0
    for _ in range(1500):
        kernel.scores(spec, state, rng, lazy)
        kernel.indices(spec, state, rng, exact)
        assert np.array_equal(lazy == lazy.max(), exact == exact.max())
        assert (lazy >= exact).all()
        saved += int((lazy != exact).sum())
        arm = int(np.argmax(lazy))
        kernel.update(spec, state, arm, float(env.sample(arm, rng, 1)[0]))
    assert saved > 1000  # the shortcut is taken


# ----------------------------------------------------------------------------- the proven policy


def proven_index(rewards: list[float], t: int, sigma: float) -> float:
    """As the page on optimality writes it, maximised on a grid."""
    paid = [r for r in rewards if r != 0.0]
    if not paid:
        return math.inf
    level = math.log(t) + 3.0 * math.log(max(math.log(t), 1.0))
    mean = sum(paid) / len(paid)
    return oracles.joint_upper(
        len(rewards),
        len(paid),
        level,
        lambda budget: mean + sigma * np.sqrt(2.0 * budget / len(paid)),
    )


def test_the_proven_policy_decides_as_it_is_written() -> None:
    spec = ZIKLUCB(sigma=0.8, c=3.0, unseen=math.inf)
    env = zib.env.GaussianMAB(means=[1.0, 3.0, -0.5], probs=[0.5, 0.1, 0.3], sigma=0.8)
    state, rng = kernel.init(spec, 3), np.random.default_rng(4)
    out = np.zeros(3)
    histories: list[list[float]] = [[], [], []]
    waited = 0
    for t in range(1, 151):
        kernel.scores(spec, state, rng, out)
        wanted = np.array([proven_index(rewards, t, 0.8) for rewards in histories])
        assert np.array_equal(out == out.max(), wanted == wanted.max()), t
        waited += sum(bool(h) and not any(h) for h in histories)
        arm = int(np.argmax(out))
        reward = float(env.sample(arm, rng, 1)[0])
        kernel.update(spec, state, arm, reward)
        histories[arm].append(reward)
    assert waited > 3  # an arm that has not paid was met


def test_the_proven_policy_stands_beside_the_default_in_the_experiment() -> None:
    gaussian = limit.instances()[0]
    found = limit.policies(gaussian)
    assert found[limit.PROVEN] == ZIKLUCB(sigma=1.0, c=3.0, unseen=math.inf)
    assert found["ZI-KL-UCB"] == ZIKLUCB(sigma=1.0)


@pytest.mark.parametrize("kind", [mab.ZIUCB, mab.ZIHeavyUCB, ZIKLUCB, ZIIMED])
def test_an_arm_may_be_played_until_it_pays(kind: type) -> None:
    options = {
        mab.ZIUCB: {"horizon": 100, "sigma": 1.0},
        mab.ZIHeavyUCB: {"epsilon": 1.0, "moment": 9.0},
    }.get(kind, {"sigma": 1.0})
    spec = kind(**options, unseen=math.inf)
    with interpreted():
        bandit = zib.Bandit(spec, n_arms=2, seed=0)
        bandit.update_many([0, 1] * 20 + [0], [3.0, 0.0] * 20 + [3.0])
        again = zib.Bandit.loads(bandit.dumps())
        assert again.spec == spec
        assert again.spec.unseen == math.inf
        # 20 zeros: with the magnitude of the other arm it would no longer be worth a pull
        assert bandit.select() == 1
        default = zib.Bandit(kind(**options), n_arms=2, seed=0)
        default.update_many([0, 1] * 20 + [0], [3.0, 0.0] * 20 + [3.0])
        assert default.select() == 0
    for wrong in (-math.inf, math.nan, "inf"):
        with pytest.raises(InvalidParameterError, match="`unseen` must be"):
            kind(**options, unseen=wrong)


def test_posterior_draws_have_the_posterior_law() -> None:
    """Kolmogorov–Smirnov at level 1e-6 for the product drawn for one arm."""
    rows = histories(7, rounds=200)
    n, x = statistics(rows, 2)
    b, draws = len(x), 4000
    rng = np.random.default_rng(8)
    p = rng.beta(1 + b, 1 + n - b, 200_000)
    cases = {
        "known sigma": x.mean() + 0.7 / math.sqrt(b) * rng.standard_normal(200_000),
        "exponential": x.sum() / rng.standard_gamma(b, 200_000),
        "gamma": 2.0 * x.sum() / rng.standard_gamma(2.0 * b, 200_000),
    }
    for name, mu in cases.items():
        spec = ZIPosterior(**FAMILIES[name])
        bandit = played(spec, rows)
        out, found = np.zeros(4), []
        for _ in range(draws):
            kernel.scores(spec, bandit.state, rng, out)
            found.append(out[2])
        assert stats.ks_2samp(found, p * mu).pvalue > 1e-6


def test_digamma() -> None:
    for x in (1e-3, 0.1, 0.5, 1.0, 3.7, 50.0, 1e6):
        assert digamma(x) == pytest.approx(float(special.digamma(x)), rel=1e-10, abs=1e-10)


def test_the_learned_prior_maximises_the_marginal_likelihood() -> None:
    """Beta-binomial and normal-normal likelihoods by SciPy, from the same statistics."""
    rng = np.random.default_rng(9)
    arms, n, sigma = 200, 400, 0.5
    p, mu = rng.beta(2.0, 30.0, arms), rng.normal(3.0, 0.8, arms)
    spec = ZIPosterior(sigma=sigma, prior="learned")
    bandit = zib.Bandit(spec, n_arms=arms, seed=0)
    labels = np.repeat(np.arange(arms), n)
    rng.shuffle(labels)
    rewards = np.where(rng.random(labels.size) < p[labels], rng.normal(mu[labels], sigma), 0.0)
    bandit.update_many(labels.tolist(), rewards)
    state = bandit.state
    # the last fit is at most five per cent of the rounds old, and climbs a few steps at a time
    b, pulls = state.nonzero, state.pulls

    def betabinomial(v: np.ndarray) -> float:
        a, c = np.exp(v)
        return -float((special.betaln(a + b, c + pulls - b) - special.betaln(a, c)).sum())

    best = np.exp(optimize.minimize(betabinomial, [0.5, 3.0], method="Nelder-Mead").x)
    assert state.own.alpha[0] == pytest.approx(best[0], rel=0.1)
    assert state.own.beta[0] == pytest.approx(best[1], rel=0.1)
    paid = b > 0
    means = state.total[paid] / b[paid]

    def normal(v: np.ndarray) -> float:
        variance = math.exp(v[1]) + sigma**2 / b[paid]
        return float((0.5 * np.log(variance) + (means - v[0]) ** 2 / (2 * variance)).sum())

    place, log_spread = optimize.minimize(normal, [2.5, -0.5], method="Nelder-Mead").x
    assert state.own.centre[0] == pytest.approx(place, abs=0.03)
    assert state.own.variance[0] == pytest.approx(math.exp(log_spread), rel=0.1)


def test_a_learned_prior_halves_the_regret_with_many_arms() -> None:
    """200 arms, 3 % rewards: paired over 6 runs; the ratio is about 0.5, and 0.8 is far off."""

    class ManyArms:
        n_arms = 200

        def instance(self, rng: np.random.Generator) -> zib.env.GaussianMAB:
            means, probs = rng.uniform(1, 3, 200), rng.beta(1.0, 30.0, 200)
            return zib.env.GaussianMAB(means=means, probs=probs, sigma=0.5)

    policies = {
        "flat": ZIPosterior(sigma=0.5),
        "learned": ZIPosterior(sigma=0.5, prior="learned"),
    }
    result = zib.simulate(policies, ManyArms(), horizon=20_000, replications=6, progress=False)
    flat, learned = result.mean()[:, -1]
    assert learned < 0.8 * flat


def test_priors_stay_modest_when_all_arms_are_alike() -> None:
    spec = ZIPosterior(sigma=1.0, prior="learned")
    bandit = zib.Bandit(spec, n_arms=3, seed=0)
    rng = np.random.default_rng(1)
    arms = rng.integers(0, 3, 6000)
    bandit.update_many(arms.tolist(), np.where(rng.random(6000) < 0.1, 2.0, 0.0))
    assert bandit.state.own.alpha[0] <= 20.0
    assert bandit.state.own.variance[0] >= 1.0 / 20.0 - 1e-12


@pytest.mark.usefixtures("interpreting")
@pytest.mark.parametrize("policy", [ZIKLUCB, ZIIMED, ZIPosterior])
@pytest.mark.parametrize("family", FAMILIES)
def test_degenerate_data(policy: type, family: str) -> None:
    """Nothing paid yet, one reward, all rewards equal, p̂ = 1: no NaN, every arm can be chosen."""
    spec = policy(**FAMILIES[family])
    for rewards in ([0.0] * 5, [0.0, 2.0], [2.0, 2.0, 2.0], [1.0, 2.0, 1.5], [1e-100, 1e100]):
        bandit = zib.Bandit(spec, n_arms=2, seed=0)
        bandit.update_many([0] * len(rewards) + [1] * 3, [*rewards, 0.0, 0.0, 1.0])
        scores = np.array(list(bandit.indices().values()))
        assert not np.isnan(scores).any()
        assert bandit.select() in (0, 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ZIKLUCB(family="normal"), "`family` must be one of 'gaussian'"),
        (lambda: ZIKLUCB(family="gamma"), "`shape` must be given for the family 'gamma'"),
        (lambda: ZIIMED(family="exponential", sigma=1.0), "`sigma` belongs to the family 'gauss"),
        (lambda: ZIPosterior(shape=2.0), "`shape` belongs to the family 'gamma' only"),
        (lambda: ZIKLUCB(sigma=0.0), r"`sigma` must lie in \(0, inf\)"),
        (lambda: ZIKLUCB(delta=1.5), r"`delta` must lie in \(0, 1\); got 1.5"),
        (lambda: ZIKLUCB(c=-1.0), r"`c` must lie in"),
        (lambda: ZIPosterior(prior="wide"), "`prior` must be one of 'flat', 'learned'"),
    ],
)
def test_bad_input(make, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        make()


@pytest.mark.slow
def test_lognormal_statistics_cannot_be_merged_and_others_can() -> None:
    first, second = (zib.Bandit(ZIIMED(family="lognormal"), n_arms=2, seed=s) for s in (0, 1))
    with pytest.raises(InvalidParameterError, match="`merge` needs statistics that are sums"):
        first.merge(second)
    one = zib.Bandit(ZIIMED(), n_arms=2, seed=0)
    one.update(0, 2.0)
    one.merge(zib.Bandit(ZIIMED(), n_arms=2, seed=1))
    assert one.pulls[0] == 1


def test_a_bandit_without_a_policy_needs_nothing() -> None:
    bandit = zib.Bandit(n_arms=2, seed=0)
    assert bandit.spec == ZIAdaptive()
    env = zib.env.ExponentialMAB(means=[20.0, 20.0], probs=[0.05, 0.10])
    result = zib.simulate([bandit.spec], env, horizon=3000, replications=40, progress=False)
    # about 2 600 of 3 000 pulls on average, with a standard error of about 100
    assert result.pulls[0, :, 1].mean() > 2000
    rng = np.random.default_rng(3)
    for _ in range(300):
        arm = bandit.select()
        bandit.update(arm, float(rng.exponential(20.0)) if rng.random() < 0.1 else 0.0)
    again = zib.Bandit.loads(bandit.dumps())
    assert again.spec == bandit.spec
    features = zib.ContextualBandit(n_features=3, seed=0)
    assert features.spec == zib.contextual.JointUCB()
