"""`LoanPricing`: a market of loans fitted to records; price classes are the actions.

Each round a customer's covariates come from the records. Offering a class draws a price from the
past prices inside it. The customer accepts with probability h((a, 1, b)θ) and then brings
(a, 1, b)β plus noise; otherwise nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from zib.cases.loan.fit import (
    Transform,
    class_quantiles,
    design,
    fit_binary,
    fit_profit,
    split_prices,
    transformed,
)
from zib.cases.loan.records import LoanRecords
from zib.contextual.links import value
from zib.core.cache import cached_njit
from zib.core.rng import Role, stream
from zib.core.spec import positive, word
from zib.core.validate import InvalidParameterError, integer
from zib.env.contextual import (
    LARGEST_FEATURE,
    LINK_NAMES,
    LINKS,
    NOISES,
    ContextBlock,
    EveryArm,
    Instance,
    LinkName,
    Noise,
    draw_noise,
)
from zib.env.registry import Array, ContextualEnvironment, matrix, text, vector
from zib.logs.public.cprm import CLASSES

NODES = 8  # Gauss points between two neighbouring quantiles of the price
LARGEST_TABLE, USUAL_TABLE = 20_000, 10_000  # customers kept


class ClassSummary(NamedTuple):
    """What offering each class means, averaged over customers and prices; one number per class."""

    price: Array
    acceptance: Array
    mean: Array
    variance: Array
    best: Array


def _fill(
    link: Any,
    noise: int,
    sigma: float,
    beta: Any,
    theta: Any,
    contexts: Any,
    prices: Any,
    offered: Any,
    means: Any,
    rng: Any,
    block: Any,
) -> None:
    """Draw rounds: the customer, the level of the price in its class, the uniform, the noise."""
    arms, z, w, reward, mean, count = block
    n_contexts, m = contexts.shape
    n_classes, knots = prices.shape
    for t in range(count.size):
        i = int(rng.random() * n_contexts)
        place = rng.random() * (knots - 1)
        left = int(place)
        u = rng.random()
        noise_now = draw_noise(noise, sigma, rng)
        profit = beta[1]
        predictor = theta[1]
        for j in range(m):
            b = contexts[i, j]
            profit += beta[j + 2] * b
            predictor += theta[j + 2] * b
            for k in range(n_classes):
                z[t, j + 2, k] = b
                w[t, j + 2, k] = b
        count[t] = n_classes
        for k in range(n_classes):
            arms[t, k] = k
            z[t, 0, k] = offered[k]
            w[t, 0, k] = offered[k]
            z[t, 1, k] = 1.0
            w[t, 1, k] = 1.0
            low = prices[k, left]
            a = low + (place - left) * (prices[k, left + 1] - low)
            p = value(link, predictor + theta[0] * a)
            reward[t, k] = profit + beta[0] * a + noise_now if u < p else 0.0
            mean[t, k] = means[i, k]


_fill_market = cached_njit(_fill)


def _integrate(link: Any, profit: Any, predictor: Any, slopes: Any, nodes: Any, out: Any) -> None:
    """Write E p, E pX and E pX² (noise apart) of each context and class into `out`."""
    by_profit, by_predictor = slopes
    n_classes, n_nodes = nodes.shape[1:]
    for i in range(profit.size):
        for k in range(n_classes):
            first, second, third = 0.0, 0.0, 0.0
            for j in range(n_nodes):
                a = nodes[0, k, j]
                p = nodes[1, k, j] * min(value(link, predictor[i] + by_predictor * a), 1.0)
                x = profit[i] + by_profit * a
                first += p
                second += p * x
                third += p * x * x
            out[0, i, k] = first
            out[1, i, k] = second
            out[2, i, k] = third


_integrate_all = cached_njit(_integrate)


class LoanPricing(EveryArm, Instance, ContextualEnvironment, positional=2):
    """A contextual market of loans: price classes as actions, customers drawn from records.

    Parameters
    ----------
    beta, theta
        Coefficients of the profit and of the acceptance on (a, 1, b): price, constant, covariates.
    contexts
        One row per customer: b. Each round draws one, all equally likely.
    prices
        One row per class: the quantiles of its prices at evenly spaced levels from 0 to 1. Between
        two of them prices are uniform.
    link
        Link h of the acceptance.
    noise, sigma
        Law and standard deviation of the noise of the profit, as in `ContextualGLM`; the paper's
        centred exponential variable by default.
    price_scale
        Policies see prices divided by it.
    source
        Where the records come from.

    Notes
    -----
    In a round with covariates b, class k offers a price a with the law f_k of its past prices, and
    pays R = Y·((a, 1, b)β + ε), Y ~ Bernoulli(h((a, 1, b)θ)); `mean` is
    ∫ (a, 1, b)β·h((a, 1, b)θ) f_k(a) da, by Gauss quadrature between neighbouring quantiles. All
    classes share the level of the price inside its class, the uniform number behind Y, and ε.

    Policies do not see the price that will be drawn. The features of class k are
    (mean price of the class/price_scale, 1, b), the same for both parts. So the linear models they
    fit are slightly wrong, as in the paper: h of a mean is not the mean of h, and accepted prices
    are lower than offered ones. Regret is that of the true market.

    The log link is capped at probability one; where the cap binds, quadrature is less accurate.

    Examples
    --------
    >>> from zib.env import synthetic_loan_records
    >>> market = LoanPricing.fit(synthetic_loan_records(5000))
    >>> market.n_arms, market.n_features, market.classes[market.summary().mean.argmax()]
    (5, (7, 7), 'high')
    """

    beta: Any = vector()
    theta: Any = vector()
    contexts: Any = matrix(LARGEST_FEATURE)
    prices: Any = matrix(LARGEST_FEATURE)
    link: LinkName = word(LINK_NAMES, default="logit")
    noise: Noise = word(NOISES, default="exponential")
    sigma: float = positive(default=1.0)
    price_scale: float = positive(default=1.0)
    source: str = text(default="")

    def check(self) -> None:
        """Raise unless coefficients fit the covariates and quantiles do not fall."""
        m = self.contexts.shape[1]
        for name, coef in (("beta", self.beta), ("theta", self.theta)):
            if coef.size != m + 2:
                raise InvalidParameterError(
                    f"`{name}` must have an entry for price, constant and each of the {m} columns "
                    f"of `contexts`, {m + 2} in all; got {coef.size}"
                )
        if self.prices.shape[1] < 2 or (np.diff(self.prices, axis=1) < 0).any():
            raise InvalidParameterError(
                "`prices` must have rows of at least 2 quantiles that do not fall; "
                f"got shape {self.prices.shape}"
            )

    @property
    def n_arms(self) -> int:
        """Number of price classes."""
        return len(self.prices)

    @property
    def dimension(self) -> int:
        """Number of features of the profit, and of the acceptance."""
        return int(self.beta.size)

    @cached_property
    def _mean_price(self) -> Array:
        return np.asarray(((self.prices[:, 1:] + self.prices[:, :-1]) / 2).mean(axis=1))

    @cached_property
    def _moments(self) -> Array:
        """Return E p, E pX and E pX² for each context and class, noise apart."""
        at, weight = np.polynomial.legendre.leggauss(NODES)
        low, high = self.prices[:, :-1, None], self.prices[:, 1:, None]
        points = (low + high) / 2 + (high - low) / 2 * at
        weights = np.broadcast_to(weight / 2 / low.shape[1], points.shape)
        nodes = np.stack([points, weights]).reshape(2, self.n_arms, -1)
        out = np.empty((3, len(self.contexts), self.n_arms))
        profit = self.beta[1] + self.contexts @ self.beta[2:]
        predictor = self.theta[1] + self.contexts @ self.theta[2:]
        slopes = (float(self.beta[0]), float(self.theta[0]))
        _integrate_all(LINKS[self.link], profit, predictor, slopes, nodes, out)
        return out

    @classmethod
    def fit(
        cls,
        records: LoanRecords,
        *,
        link: LinkName = "logit",
        lam: float = 1.0,
        transform: Transform = "linear",
        cuts: Sequence[float] | None = None,
        noise: Noise = "exponential",
        seed: int = 0,
        most_contexts: int = USUAL_TABLE,
    ) -> LoanPricing:
        """Return the market fitted to records.

        Parameters
        ----------
        records
            Offers with their outcomes.
        link
            Link of the acceptance, fitted by maximum likelihood on all records.
        lam
            Mean of the exponential noise the profit is made with where the records have none; see
            `fit_profit`. Where they have one, the noise has the standard deviation of its
            residuals.
        transform
            b(x): ``"linear"`` or ``"quadratic"`` in the standardised covariates.
        cuts
            Prices at which one class ends and the next begins, in the upper end of the lower one;
            by default the quantiles .25, .75, .915 and .9875 of the records' prices, as in the
            paper.
        noise
            Law of the noise of profits in the market. (The paper asks for noise in words, but its
            formula of the online profit has none.)
        seed
            Seed of the made-up profits and of the customers kept.
        most_contexts
            How many customers are kept (at most 20 000); if there are more records, a sample.

        Raises
        ------
        InvalidParameterError
            If a class has fewer than 20 records, or the acceptance cannot be fitted with `link`.
        """
        if not isinstance(records, LoanRecords):
            raise InvalidParameterError(
                f"`records` must be LoanRecords; got {type(records).__name__}"
            )
        most = integer("most_contexts", most_contexts, 1, LARGEST_TABLE)
        seed = integer("seed", seed, 0)
        prices = [class_quantiles(p) for p in split_prices(records, cuts)]
        acceptance = fit_binary(design(records, transform), records.accepted, link)
        if not acceptance.converged:
            raise InvalidParameterError(
                f"`link` must fit the records; maximum likelihood with {link!r} did not converge"
            )
        profit = fit_profit(records, stream(seed, Role.INSTANCE, 0), lam=lam, transform=transform)
        rows = np.arange(records.n_records)
        if rows.size > most:
            rows = np.sort(stream(seed, Role.INSTANCE, 1).choice(rows, most, replace=False))
        return cls(
            profit.beta,
            acceptance.coef,
            contexts=transformed(records.standardised[rows], transform),
            prices=prices,
            link=link,
            noise=noise,
            sigma=profit.sigma,
            price_scale=float(records.price.std()),
            source=records.source,
        )

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the actions."""
        if self.n_arms == len(CLASSES):
            return CLASSES
        return tuple(f"class {k + 1}" for k in range(self.n_arms))

    @property
    def feature_norms(self) -> tuple[float, float]:
        """Norms of the coefficients of profit and acceptance on the features policies see."""
        unit = np.ones(self.beta.size)
        unit[0] = self.price_scale
        return float(np.linalg.norm(unit * self.beta)), float(np.linalg.norm(unit * self.theta))

    def summary(self) -> ClassSummary:
        """Return mean price, acceptance, mean and variance of the reward of each class.

        Averages over customers; `best` is the share of customers for whom the class is best.
        """
        p, first, second = self._moments.mean(axis=1)
        second = second + p * self.sigma**2
        best = np.bincount(self._moments[1].argmax(axis=1), minlength=self.n_arms)
        return ClassSummary(
            self._mean_price.copy(), p, first, second - first**2, best / len(self.contexts)
        )

    @cached_property
    def _parts(self) -> tuple[Any, ...]:
        """What compiled code draws rounds with: codes, and arrays of its own."""
        arrays = (self.beta, self.theta, self.contexts, self.prices)
        offered = self._mean_price / self.price_scale
        code = NOISES.index(self.noise)
        own = (np.array(a) for a in arrays)
        return LINKS[self.link], code, self.sigma, *own, offered, np.array(self._moments[1])

    def _draw(self, rng: np.random.Generator, block: ContextBlock) -> None:
        _fill_market(*self._parts, rng, block)

    def __repr__(self) -> str:
        digest = hashlib.sha256()
        for array in (self.beta, self.theta, self.contexts, self.prices):
            digest.update(array.tobytes())
        numbers = f"{self.noise} {self.sigma:.6g} {self.price_scale:.6g}"
        digest.update(numbers.encode())
        customers, covariates = self.contexts.shape
        return (
            f"<LoanPricing of {self.n_arms} classes, {customers} customers with {covariates} "
            f"covariates, {self.link} link, {self.source or 'no source'}, "
            f"data {digest.hexdigest()[:12]}>"
        )
