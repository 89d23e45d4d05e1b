"""The slow, obvious oracle: every estimate and every index from the whole history.

Nothing here is shared with the package: links are those of statsmodels, equations are solved by
SciPy or by textbook iterations on all rows at once, matrices are inverted anew. Histories are
matrices with one observation per row.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, special
from statsmodels.genmod.families import links as statsmodels_links

LINKS = {
    "logit": statsmodels_links.Logit(),
    "probit": statsmodels_links.Probit(),
    "cauchit": statsmodels_links.Cauchy(),
    "cloglog": statsmodels_links.CLogLog(),
    "log": statsmodels_links.Log(),
}


def value(link, eta):
    with np.errstate(over="ignore"):
        return np.minimum(LINKS[link].inverse(eta), 1.0)


def slope(link, eta):
    with np.errstate(over="ignore", invalid="ignore"):
        return np.nan_to_num(LINKS[link].inverse_deriv(eta))


def distance(found, wanted, information):
    """Return √((a − b)'I(a − b)): no linear combination is further off, in standard errors."""
    gap = found - wanted
    return math.sqrt(gap @ information @ gap)


# --------------------------------------------------------------------------------- the occurrence


def log_likelihood(link, eta, y):
    """Return the log-likelihood of each observation, accurate in the tails."""
    if link == "logit":
        return np.where(y > 0, special.log_expit(eta), special.log_expit(-eta))
    if link == "probit":
        return np.where(y > 0, special.log_ndtr(eta), special.log_ndtr(-eta))
    if link == "cauchit":
        return np.log(np.arctan2(1.0, np.where(y > 0, -eta, eta)) / math.pi)
    if link == "cloglog":
        rate = np.exp(np.minimum(eta, 700.0))
        with np.errstate(divide="ignore"):
            return np.where(y > 0, np.log(-np.expm1(-rate)), -rate)
    with np.errstate(divide="ignore"):
        return np.where(y > 0, np.minimum(eta, 0.0), np.log(-np.expm1(np.minimum(eta, 0.0))))


def likelihood_terms(link, eta, y):
    """Return the score of each observation and its Fisher information, accurate in the tails."""
    ones, zeros = (
        np.exp(log_likelihood(link, eta, v)) for v in (np.ones(y.size), np.zeros(y.size))
    )
    h = slope(link, eta)
    with np.errstate(divide="ignore", invalid="ignore"):
        score = np.where(y > 0, h / ones, -h / zeros)
        fisher = h * h / (ones * zeros)
    return np.nan_to_num(score), np.nan_to_num(fisher)


def information(link, x, ridge, theta):
    """Return the penalised Fisher information."""
    fisher = likelihood_terms(link, x @ theta, np.zeros(len(x)))[1]
    return gram(x, ridge, fisher)


def maximum_likelihood(link, x, y, ridge, start):
    """Maximise Σ log-likelihood − ridge·‖θ‖²/2 by Fisher scoring with halved steps."""
    theta = np.array(start, dtype=float)

    def loss(at):
        if link == "log" and (x @ at).max() >= 0:
            return math.inf
        return 0.5 * ridge * at @ at - log_likelihood(link, x @ at, y).sum()

    lowest = loss(theta)
    assert math.isfinite(lowest), "start where the likelihood is positive"
    for _ in range(300):
        score, fisher = likelihood_terms(link, x @ theta, y)
        gradient = x.T @ score - ridge * theta
        step = np.linalg.solve(gram(x, ridge, fisher), gradient)
        if gradient @ step < 1e-16:
            return theta
        while loss(theta + step) > lowest + 1e-9 * abs(lowest):
            step /= 2
        theta = theta + step
        lowest = loss(theta)
    raise AssertionError("Fisher scoring did not converge")


def paper_estimate(link, x, y, ridge, start):
    """Solve Σ (Y − h(w'θ))·w = ridge·θ."""

    def equations(theta):
        return x.T @ (y - LINKS[link].inverse(x @ theta)) - ridge * theta

    def jacobian(theta):
        return -(x.T * slope(link, x @ theta)) @ x - ridge * np.eye(x.shape[1])

    found = optimize.root(equations, start, jac=jacobian, tol=1e-12)
    assert np.abs(found.fun).max() < 1e-6, found.message
    return found.x


def sandwich(link, x, ridge, theta):
    """Return the inverse of the covariance of the solution of the paper's equation."""
    eta = x @ theta
    p = value(link, eta)
    bread = (x.T * slope(link, eta)) @ x + ridge * np.eye(x.shape[1])
    filling = (x.T * (p * (1 - p))) @ x + ridge * np.eye(x.shape[1])
    return bread @ np.linalg.solve(filling, bread)


def in_ball(solve, ridge, bound):
    """Return the estimate confined to ‖c‖ ≤ bound, where `solve` returns the one for a ridge.

    On the sphere the constraint acts like a larger ridge.
    """
    free = solve(ridge)
    if np.linalg.norm(free) <= bound:
        return free

    def excess(extra):
        return np.linalg.norm(solve(ridge + extra)) - bound

    high = 1.0
    while excess(high) > 0:
        high *= 4
    return solve(ridge + optimize.brentq(excess, 0.0, high, xtol=1e-12, rtol=1e-12))


# ---------------------------------------------------------------------------------- the magnitude


def gram(x, ridge, weights=1.0):
    return (x.T * weights) @ x + ridge * np.eye(x.shape[1])


def ridge_regression(x, y, ridge):
    return np.linalg.solve(gram(x, ridge), x.T @ y)


def noise(x, y, ridge):
    """Return the estimate of σ: from the penalised sum of squares, widened for small samples."""
    n = len(y)
    if n == 0:
        return 1.0
    coef = ridge_regression(x, y, ridge)
    least = np.sum((y - x @ coef) ** 2) + ridge * coef @ coef
    return math.sqrt(least / n * (1 + 2 / n))


def exponential_regression(x, y, ridge, start):
    """Least squares for y ≈ exp(x'c), with ridge."""
    root = math.sqrt(ridge)
    found = optimize.least_squares(
        lambda c: np.concatenate([np.exp(x @ c) - y, root * c]),
        start,
        jac=lambda c: np.vstack([x * np.exp(x @ c)[:, None], root * np.eye(x.shape[1])]),
        xtol=1e-14,
        ftol=1e-14,
        gtol=1e-14,
    )
    return found.x


def printed_exponential_regression(x, y, ridge, start):
    """Solve Σ (y − exp(x'c))·x = ridge·c."""
    found = optimize.root(
        lambda c: x.T @ (y - np.exp(x @ c)) - ridge * c,
        start,
        jac=lambda c: -gram(x, ridge, np.exp(x @ c)),
        tol=1e-12,
    )
    assert np.abs(found.fun).max() < 1e-6, found.message
    return found.x


def huber_threshold(residuals, d):
    """Solve Σ min(r², τ²) = τ²·(d + log n) for τ; infinite for too few observations."""
    n = len(residuals)
    goal = d + math.log(n)
    if n <= goal:
        return math.inf

    def excess(log_tau):
        return (
            np.minimum(np.exp(-log_tau) * np.abs(residuals), 1.0)
            @ np.minimum(np.exp(-log_tau) * np.abs(residuals), 1.0)
            - goal
        )

    high = math.log(np.abs(residuals).max()) + 0.5 * math.log(n)
    return math.exp(optimize.brentq(excess, high - 60, high + 1, xtol=1e-14))


def huber(x, y, ridge, start):
    """Return adaptive Huber regression and its threshold, by reweighting until nothing moves."""
    coef = np.array(start, dtype=float)
    for _ in range(5000):
        residuals = y - x @ coef
        tau = huber_threshold(residuals, x.shape[1])
        weights = np.minimum(1.0, tau / np.maximum(np.abs(residuals), 1e-300))
        new = np.linalg.solve(gram(x, ridge, weights), x.T @ (weights * y))
        moved = distance(new, coef, gram(x, ridge))
        coef = new
        if moved < 1e-12:
            return coef, tau
    raise AssertionError("reweighting did not converge")


def median_of_means(x, y, ridge, groups):
    """Return the geometric median of the groups' ridge regressions, and the noise of its errors."""
    n, d = x.shape
    used = min(n, groups)
    share = ridge / groups
    parts = [(x[k::groups], y[k::groups]) for k in range(used)]
    coefs = [ridge_regression(a, b, share) for a, b in parts]
    inverses = [np.linalg.inv(gram(a, share)) for a, _ in parts]
    metric = gram(x, ridge)
    centre = geometric_median(np.array(coefs) @ np.linalg.cholesky(metric))
    hats = [a @ inverse @ a.T for (a, _), inverse in zip(parts, inverses, strict=True)]
    free = [len(hat) - np.trace(hat) for hat in hats]
    squares = [b @ (b - hat @ b) / f for (_, b), hat, f in zip(parts, hats, free, strict=True)]
    of_median = (1 - 2 / (9 * max(np.mean(free), 1))) ** 3
    variance = np.median(squares) / of_median * (1 + 2 / n)
    variance *= np.trace(metric @ np.mean(inverses, axis=0)) / (used * d)
    if groups > 2:
        ratio = special.gamma(d / 2) / special.gamma((d + 1) / 2)
        variance *= d / 2 * ratio**2
    return np.linalg.solve(np.linalg.cholesky(metric).T, centre), math.sqrt(variance)


def geometric_median(points):
    """Return the point with the smallest sum of distances to the rows."""
    if len(points) < 3:
        return points.mean(axis=0)
    found = optimize.minimize(
        lambda at: np.linalg.norm(points - at, axis=1).sum(),
        np.median(points, axis=0),
        method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-14, "maxiter": 20_000, "maxfev": 20_000},
    )
    return found.x


# ----------------------------------------------------------------------------- the reward at once


def product_residuals(link, z, w, y, ridge, coef):
    d = z.shape[1]
    fitted = (z @ coef[:d]) * value(link, w @ coef[d:])
    return np.concatenate([fitted - y, math.sqrt(ridge) * coef])


def product_jacobian(link, z, w, ridge, coef):
    d = z.shape[1]
    p, h = value(link, w @ coef[d:]), slope(link, w @ coef[d:])
    rows = np.hstack([z * p[:, None], w * (h * (z @ coef[:d]))[:, None]])
    return np.vstack([rows, math.sqrt(ridge) * np.eye(coef.size)])


def product_regression(link, z, w, y, ridge, start):
    """Least squares for y ≈ z'β·h(w'θ), with ridge, near `start`."""
    found = optimize.least_squares(
        lambda c: product_residuals(link, z, w, y, ridge, c),
        start,
        jac=lambda c: product_jacobian(link, z, w, ridge, c),
        xtol=1e-14,
        ftol=1e-14,
        gtol=1e-14,
    )
    return found.x


def product_loss(link, z, w, y, ridge, coef):
    return 0.5 * np.sum(product_residuals(link, z, w, y, ridge, coef) ** 2)


def product_regression_in_balls(link, z, w, y, ridge, bound, start):
    """The same with ‖β‖ ≤ bound and ‖θ‖ ≤ bound; not to the last digit."""
    d, n = z.shape[1], len(y)

    def gradient(c):
        residuals = product_residuals(link, z, w, y, ridge, c)
        return product_jacobian(link, z, w, ridge, c).T @ residuals / n

    inside = [
        {"type": "ineq", "fun": lambda c: bound**2 - c[:d] @ c[:d]},
        {"type": "ineq", "fun": lambda c: bound**2 - c[d:] @ c[d:]},
    ]
    return optimize.minimize(
        lambda c: product_loss(link, z, w, y, ridge, c) / n,
        start,
        jac=gradient,
        constraints=inside,
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 1000},
    ).x


# ---------------------------------------------------------------------------------------- indices
# `past` is the history (z, w, rewards); z and w hold the actions of the round, one per row


def norms(x, information):
    """Return ‖x‖ in the inverse of the matrix, for every row."""
    return np.sqrt(np.einsum("ki,ki->k", x, np.linalg.solve(information, x.T).T))


def kappa(link, bound):
    return 1.0 if link == "identity" else float(slope(link, np.array([-bound, bound])).min())


def radius(horizon, d, t, ridge, sigma, slope_at_least):
    """Return ρ = (σ/κ)√(4 log T + d log(1 + t/(λd)))."""
    growth = d * math.log(1 + t / (ridge * d))
    return sigma / slope_at_least * math.sqrt(4 * math.log(horizon) + growth)


def huber_radius(horizon, d, t, n, ridge, sigma, epsilon):
    """Return σ·n^γ·L^(ε/(1+ε)), with L under the root of `radius`."""
    growth = (1 - epsilon) / (2 * (1 + epsilon))
    power = 2 * epsilon / (1 + epsilon)
    return sigma * n**growth * radius(horizon, d, t, ridge, 1.0, 1.0) ** power


def groups_radius(horizon, d, n, ridge, sigma, epsilon, groups, bound):
    """Return the radius of a geometric median of an odd number of groups.

    A group is off by more than σ·(2^(1−ε)/δ')^(1/(1+ε))·(n/m)^γ·√D + √(λ/m)·bound in the norm of
    its own matrix with probability δ'; the median by C times as much, if fewer than half are.
    """
    half = (groups + 1) // 2
    failure = (horizon * math.comb(groups, half)) ** (-1 / half)
    growth = (1 - epsilon) / (2 * (1 + epsilon))
    share, many = ridge / groups, n / groups
    size = sigma * many**growth * (2 ** (1 - epsilon) / failure) ** (1 / (1 + epsilon))
    one = size * math.sqrt(d * math.log(1 + many / (share * d))) + math.sqrt(share) * bound
    bad = (half - 1) / groups
    return (1 - bad) / math.sqrt(1 - 2 * bad) * math.sqrt(groups) * one


def spread(horizon, d, n_actions, sigma):
    """Return ϱ = √(24σ²d log(T)²)/K."""
    return math.sqrt(24 * sigma**2 * d) * math.log(horizon) / n_actions


def zi_ucb(
    past, z, w, beta, theta, *, link, horizon, sigma, ridge, bound, scale, index, radius_x=None
):
    paid = past[2] != 0
    t, d, q = len(paid), z.shape[1], w.shape[1]
    if scale == "calibrated":
        root = math.sqrt(2 * math.log(horizon))
        rho_x, rho_y = sigma * root, root / (2 * kappa(link, bound))
    else:
        rho_x = scale * (radius_x or radius(horizon, d, t, ridge, sigma, 1.0))
        rho_y = scale * radius(horizon, q, t, ridge, 1.0, kappa(link, bound))
    wide_x = rho_x * norms(z, gram(past[0][paid], ridge))
    wide_y = rho_y * norms(w, gram(past[1], ridge))
    if index == "printed":
        return (z @ beta + wide_x) * (w @ theta + wide_y)
    p, top = value(link, w @ theta), z @ beta + wide_x
    low, high = np.maximum(p - wide_y, 0), np.minimum(p + wide_y, 1)
    return np.where(top >= 0, top * high, top * low)


def joint_ucb(past, z, w, beta, theta, *, link, sigma, ridge, scale):
    paid = past[2] != 0
    eta, mu = w @ theta, z @ beta
    p = value(link, eta)
    var_mu = sigma**2 * norms(z, gram(past[0][paid], ridge)) ** 2
    var_p = slope(link, eta) ** 2 * norms(w, information(link, past[1], ridge, theta)) ** 2
    variance = p**2 * var_mu + mu**2 * var_p + var_mu * var_p
    return p * mu + scale * math.sqrt(math.log(1 + len(paid))) * np.sqrt(variance)


def naive_ucb(past, z, *, horizon, sigma, ridge, scale, radius_as):
    t, d = len(past[2]), z.shape[1]
    rho = radius(horizon, d, t, ridge, sigma, 1.0)
    factor = math.sqrt(rho) if radius_as == "printed" else rho
    coef = ridge_regression(past[0], past[2], ridge)
    return z @ coef + scale * factor * norms(z, gram(past[0], ridge))


def integrated_ucb(past, z, w, coef, *, link, horizon, sigma, ridge, bound, scale, radius_as):
    t, d, q = len(past[2]), z.shape[1], w.shape[1]
    rho = max(
        radius(horizon, d, t, ridge, sigma, 1.0),
        radius(horizon, q, t, ridge, 1.0, kappa(link, bound)),
    )
    factor = math.sqrt(rho) if radius_as == "printed" else rho
    both, seen = np.hstack([z, w]), np.hstack([past[0], past[1]])
    means = (z @ coef[:d]) * value(link, w @ coef[d:])
    return means + scale * factor * norms(both, gram(seen, ridge))


def gaussian(rng, mean, information, scale):
    """Return a draw from N(mean, scale²·A⁻¹), with the factor A = LL'."""
    lower = np.linalg.cholesky(information)
    return mean + scale * np.linalg.solve(lower.T, rng.standard_normal(mean.size))
