"""Four outcomes of one offer: ignored, clicked, bought, returned.

A click is worth 0.1, a purchase about 20, a return costs about 15. Three offers differ in how often
each happens. A policy that knows only "zero or not" sees rewards that jump between 0.1, 20 and −15
and needs many of them; a policy that tells the outcomes apart learns three probabilities.

Run this file to see both play, and one decision made by hand.
"""

from __future__ import annotations

from typing import Any

import zib

OFFERS = ("plain", "discount", "free returns")

SHOP = zib.env.OutcomesMAB(
    values=[0.1, 20.0, -15.0],  # clicked, bought, returned; ignored pays 0
    probs=[[0.10, 0.020, 0.001], [0.20, 0.024, 0.004], [0.12, 0.032, 0.016]],
    sigma=[0.0, 4.0, 3.0],
)

EDGES = (0.0, 1.0)  # at most 0: returned; up to 1: clicked; more: bought


def compare(horizon: int = 20_000, replications: int = 4, seed: int = 1) -> dict[str, float]:
    """Return the mean regret of policies that know the outcomes and of one that does not."""
    policies: list[Any] = [
        zib.mab.OutcomesPosterior(edges=EDGES),
        zib.mab.ZIPosterior(),
    ]
    result = zib.simulate(
        policies, SHOP, horizon=horizon, replications=replications, seed=seed, progress=False
    )
    return {
        policy.label: float(result.regret[i, :, -1].mean()) for i, policy in enumerate(policies)
    }


def learn_by_hand(seed: int = 1) -> zib.Bandit:
    """Return a bandit that has learned from a few visitors."""
    bandit = zib.Bandit(zib.mab.OutcomesKLUCB(edges=EDGES), arms=OFFERS, seed=seed)
    for reward in (0.0, 0.1, 0.0, 18.5, 0.0):
        bandit.update("plain", reward)
    for reward in (0.1, 0.0, 21.0, -14.0, 0.0):
        bandit.update("discount", reward)
    return bandit


if __name__ == "__main__":
    print("mean reward of each offer:", dict(zip(OFFERS, SHOP.arm_means.round(3), strict=True)))
    print("next offer:", learn_by_hand().select())
    print("regret:", compare())
