"""One or more specs of every policy, for tests that run over all of them."""

from __future__ import annotations

from zib import mab

T = 500

SPECS = {
    "zi-ucb": mab.ZIUCB(horizon=T, sigma=1.0),
    "zi-ucb printed": mab.ZIUCB(
        horizon=T, sigma=1.0, radius="subweibull", occurrence="hoeffding", unseen=1.0
    ),
    "zi-ucb weibull": mab.ZIUCB(horizon=T, tail=mab.SubWeibull(0.7, 1.5)),
    "zi-ucb weibull printed": mab.ZIUCB(
        horizon=T, tail=mab.SubWeibull(1.0, 2.0), radius="subweibull"
    ),
    "zi-ucb exponential": mab.ZIUCB(
        horizon=T, tail=mab.SubExponential(2.0), occurrence="hoeffding"
    ),
    "zi-heavy": mab.ZIHeavyUCB(epsilon=0.5, moment=4.0),
    "zi-heavy printed": mab.ZIHeavyUCB(epsilon=1.0, moment=4.0, trim="printed", radius="printed"),
    "zi-ts": mab.ZITS(horizon=T, sigma=1.0),
    "zi-ts number": mab.ZITS(horizon=T, sigma=1.0, unseen=2.0, rho=0.6, gamma=5.0),
    "zi-ts exponential": mab.ZIExponentialTS(),
    "zi-ts stable": mab.ZIStableTS(sigma=1.0, stability=1.7),
    "zi-ts stable gaussian": mab.ZIStableTS(sigma=1.0, stability=2.0),
    "ucb component": mab.UCB(horizon=T, sigma=1.0, size="component"),
    "ucb variance": mab.UCB(horizon=T, sigma=1.0, size="variance"),
    "ucb estimated": mab.UCB(horizon=T, sigma=1.0, size="estimated"),
    "ucb true": mab.UCB(horizon=T, sigma=1.0, size="true"),
    "ucb component exp": mab.UCB(horizon=T, tail=mab.SubExponential(2.0), size="component"),
    "ucb variance exp": mab.UCB(horizon=T, tail=mab.SubExponential(2.0), size="variance"),
    "ucb estimated exp": mab.UCB(horizon=T, tail=mab.SubExponential(2.0), size="estimated"),
    "mots": mab.MOTS(horizon=T, sigma=1.0),
    "mots wide": mab.MOTS(horizon=T, sigma=1.0, rho=0.9, alpha=4.0),
    "ucb1": mab.UCB1(scale=2.0),
    "ucb-v": mab.UCBV(scale=2.0),
    "kl-ucb": mab.KLUCB(scale=5.0, c=1.0),
    "beta ts": mab.BetaTS(scale=5.0),
    "normal ts": mab.NormalTS(sigma=1.0),
    "eps-greedy": mab.EpsilonGreedy(epsilon=0.1),
    "doubling zi-ucb": mab.Anytime(spec=mab.ZIUCB(horizon=50, sigma=1.0)),
    "doubling zi-ts": mab.Anytime(spec=mab.ZITS(horizon=50, sigma=1.0)),
    "doubling mots": mab.Anytime(spec=mab.MOTS(horizon=50, sigma=1.0)),
}

ONLINE = {name: spec for name, spec in SPECS.items() if name != "ucb true"}
