"""One or more specs of every policy, for tests that run over all of them."""

from __future__ import annotations

import math

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
    "zi-ucb split": mab.ZIUCB(horizon=T, sigma=1.0, split="by_prob", occurrence="printed"),
    "zi-heavy": mab.ZIHeavyUCB(epsilon=0.5, moment=4.0),
    "zi-heavy printed": mab.ZIHeavyUCB(epsilon=1.0, moment=4.0, trim="printed", radius="printed"),
    "zi-heavy literal": mab.ZIHeavyUCB(
        epsilon=1.0, moment=4.0, trim="printed", radius="printed", index="printed", unseen=1.0
    ),
    "zi-kl": mab.ZIKLUCB(sigma=1.0),
    "zi-kl unknown": mab.ZIKLUCB(c=3.0),
    "zi-kl fixed": mab.ZIKLUCB(sigma=2.0, delta=1e-3, unseen=2.0),
    "zi-kl proven": mab.ZIKLUCB(sigma=1.0, c=3.0, unseen=math.inf),
    "zi-kl exponential": mab.ZIKLUCB(family="exponential"),
    "zi-kl gamma": mab.ZIKLUCB(family="gamma", shape=2.0),
    "zi-kl lognormal": mab.ZIKLUCB(family="lognormal"),
    "zi-imed": mab.ZIIMED(sigma=1.0),
    "zi-imed unknown": mab.ZIIMED(),
    "zi-imed exponential": mab.ZIIMED(family="exponential", unseen=3.0),
    "zi-imed gamma": mab.ZIIMED(family="gamma", shape=2.0),
    "zi-imed lognormal": mab.ZIIMED(family="lognormal"),
    "zi-adaptive": mab.ZIAdaptive(),
    "zi-adaptive own": mab.ZIAdaptive(magnitudes="own"),
    "zi-adaptive shared": mab.ZIAdaptive(magnitudes="shared"),
    "zi-posterior": mab.ZIPosterior(sigma=1.0),
    "zi-posterior unknown": mab.ZIPosterior(),
    "zi-posterior learned": mab.ZIPosterior(prior="learned"),
    "zi-posterior own": mab.ZIPosterior(prior="learned", magnitudes="own"),
    "zi-posterior shared": mab.ZIPosterior(magnitudes="shared"),
    "zi-posterior learned magnitudes": mab.ZIPosterior(magnitudes="learned"),
    "zi-posterior exponential": mab.ZIPosterior(family="exponential"),
    "zi-posterior gamma": mab.ZIPosterior(family="gamma", shape=0.5),
    "zi-posterior lognormal": mab.ZIPosterior(family="lognormal"),
    "outcomes-kl": mab.OutcomesKLUCB(edges=(0.0, 1.5), sigma=(1.0, 0.5, 1.0)),
    "outcomes-kl unknown": mab.OutcomesKLUCB(edges=(0.0, 1.5), c=3.0),
    "outcomes-kl fixed": mab.OutcomesKLUCB(edges=(1.0,), sigma=0.7, delta=1e-3, unseen=2.0),
    "outcomes-kl values": mab.OutcomesKLUCB(values=(0.0, 1.0, 4.0, -2.0)),
    "outcomes-posterior": mab.OutcomesPosterior(edges=(0.0, 1.5), sigma=(1.0, 0.5, 1.0)),
    "outcomes-posterior unknown": mab.OutcomesPosterior(edges=(0.0, 1.5), unseen=2.0),
    "outcomes-posterior values": mab.OutcomesPosterior(values=(0.0, 1.0, 4.0, -2.0)),
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
    "mots stable": mab.MOTS(horizon=T, sigma=1.0, stability=1.7, skewness=0.5),
    "ucb1": mab.UCB1(scale=2.0),
    "ucb-v": mab.UCBV(scale=2.0),
    "kl-ucb": mab.KLUCB(scale=5.0, c=1.0),
    "beta ts": mab.BetaTS(scale=5.0),
    "normal ts": mab.NormalTS(sigma=1.0),
    "eps-greedy": mab.EpsilonGreedy(epsilon=0.1),
    "doubling zi-ucb": mab.Anytime(spec=mab.ZIUCB(horizon=50, sigma=1.0)),
    "doubling zi-ts": mab.Anytime(spec=mab.ZITS(horizon=50, sigma=1.0)),
    "doubling mots": mab.Anytime(spec=mab.MOTS(horizon=50, sigma=1.0)),
    "discounted zi-ucb": mab.Discounted(mab.ZIUCB(horizon=T, sigma=1.0), half_life=60, every=3),
    "discounted zi-posterior": mab.Discounted(mab.ZIPosterior(), half_life=50),
    "discounted zi-adaptive": mab.Discounted(half_life=60),
    "windowed zi-adaptive": mab.Windowed(length=60),
    "windowed zi-ts": mab.Windowed(mab.ZITS(horizon=T, sigma=1.0), length=50),
    "windowed zi-imed": mab.Windowed(mab.ZIIMED(sigma=1.0), length=60),
    "windowed kl-ucb": mab.Windowed(mab.KLUCB(scale=5.0), length=40),
    "watching zi-adaptive": mab.Watching(),
    "watching zi-ucb": mab.Watching(mab.ZIUCB(horizon=T, sigma=1.0)),
    "watching kl-ucb recheck": mab.Watching(mab.KLUCB(scale=5.0), recheck=100),
    "pending ucb1": mab.Pending(mab.UCB1(scale=2.0), every=3, per_arm=True),
}

# Policies that are told the category of every reward.
TOLD = {
    "outcomes-kl told": mab.OutcomesKLUCB(categories=3),
    "outcomes-posterior told": mab.OutcomesPosterior(categories=2, sigma=(0.5, 2.0), unseen=2.0),
}

ONLINE = {name: spec for name, spec in SPECS.items() if name != "ucb true"}
