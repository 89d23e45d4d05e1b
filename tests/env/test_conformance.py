"""Every environment keeps every promise of the suite, and the suite notices those that do not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import zib
from zib.arena.features import Seen
from zib.cases.loan import LoanMarket, LoanPricing
from zib.env import (
    MAB,
    Batched,
    BootstrapContextual,
    BootstrapMAB,
    Constant,
    ContextBlock,
    ContextualGLM,
    ContextualOutcomes,
    Delayed,
    DisjointContextual,
    DisjointGLM,
    DriftingActions,
    DriftingMAB,
    Environment,
    Exponential,
    ExponentialMAB,
    GaussianMAB,
    Lomax,
    Mixture,
    MixtureMAB,
    OutcomesMAB,
    Pareto,
    PathMAB,
    RandomContextual,
    RandomMAB,
    RoundBlock,
    Uniform,
    ZeroInflated,
)
from zib.testing import check_environment
from zib.testing.environments import ENVIRONMENT_CHECKS, check_means


def _log() -> Any:
    rng = np.random.default_rng(3)
    reward = rng.normal(2.0, 1.0, 600) * (rng.random(600) < 0.3)
    context = rng.integers(2, size=(600, 1)).astype(float)
    return zib.datasets.LoggedData.from_arrays(
        [f"arm {k}" for k in rng.integers(3, size=600)], reward, context=context
    )


GLM = ContextualGLM([0.6, 0.8], [1.0, 0.0], centres=[[1, 0], [0, 1], [0.6, 0.8]])
SMALL = RandomContextual(n_arms=6, dimension=4, sparsity=2)
# One of each kind, and a second one where a parameter changes what is drawn.
EXAMPLES: dict[str, Any] = {
    "MAB": MAB([ZeroInflated(Pareto(2.0, 1.5), 0.1), Exponential(0.5)]),
    "MAB of mixtures": MAB([Mixture([Constant(0.0), Exponential(2.0)], [0.7, 0.3])]),
    "GaussianMAB": GaussianMAB(means=[1.0, -2.0], probs=[0.3, 0.9], sigma=0.5),
    "GaussianMAB inflated": GaussianMAB([1.0, 2.0], [0.3, 0.1], 0.5, inflated=1.5),
    "MixtureMAB": MixtureMAB(means=[1.0, 2.0], probs=[0.3, 0.01], sigma=0.5),
    "ExponentialMAB": ExponentialMAB(means=[1.0, 2.0], probs=[0.3, 1.0]),
    "OutcomesMAB": OutcomesMAB([1.0, 20.0], [[0.1, 0.02], [0.5, 0.3], [0.0, 0.0]], [0.0, 4.0]),
    "OutcomesMAB by arm": OutcomesMAB([[1.0, 2.0], [3.0, -1.0]], [[0.5, 0.5], [0.1, 0.2]]),
    "RandomMAB": RandomMAB("exponential", n_arms=3),
    "LoanMarket": LoanMarket(),
    "Delayed": Delayed(RandomMAB("gaussian", n_arms=2), delay=Exponential(9.0), window=20),
    "Delayed by arm": Delayed(
        GaussianMAB([1.0, 2.0], [0.3, 0.1], 0.5, inflated=1.5),
        delay=[Uniform(1.0, 5.0), Lomax(4.0, 1.5)],
        window=4,
        starts=[7, 0],
        trend=-0.5,
    ),
    "Batched": Batched(OutcomesMAB([1.0, 20.0], [[0.1, 0.02], [0.5, 0.3]], [0.0, 4.0]), size=7),
    "BootstrapMAB": BootstrapMAB(_log()),
    "PathMAB": PathMAB(probs=[[0.1, 0.2], [0.3, 0.2]], means=[1.0, -1.0], sigma=0.5, starts=[0, 9]),
    "DriftingMAB jumps": DriftingMAB(n_arms=3, prob_speed=0.02, mean_speed=0.01),
    "DriftingMAB waves": DriftingMAB(n_arms=2, pattern="waves", prob_speed=0.003),
    "DriftingMAB": DriftingMAB(n_arms=2, pattern="walk", prob_speed=0.1, mean_speed=0.1),
    "ContextualGLM": GLM,
    "RandomContextual": SMALL,
    "RandomContextual log": SMALL._replace(link="log", noise="exponential", transform="identity"),
    "DisjointGLM": DisjointGLM([[1, 0.5], [2, 0.1]], [[-0.5, 1], [-1, 0]], noise="mixture"),
    "Seen": Seen(env=DisjointContextual(n_arms=3, dimension=3), magnitude=[0, 2], occurrence=[0]),
    "ContextualOutcomes": ContextualOutcomes(
        [[5.0, 1.0], [20.0, -3.0]], [[-1.0, 0.5], [-1.0, -0.5]], [[1.0, 0.5], [1.0, -0.5]]
    ),
    "DisjointContextual": DisjointContextual(n_arms=3, dimension=2),
    "DriftingActions": DriftingActions(SMALL, low=2, high=5, drift=0.01),
    "DriftingActions still": DriftingActions(GLM, low=1, high=3, drift=0.0),
    "LoanPricing": LoanPricing(
        [1.0, 0.2, 0.1, -0.3],
        [-0.8, 1.0, 0.3, 0.2],
        contexts=[[0.5, -1.0], [-0.5, 1.0], [0.0, 0.3]],
        prices=[[0.5, 1.0, 1.5], [1.5, 2.0, 4.0]],
        sigma=0.8,
        source="an example",
    ),
    "BootstrapContextual": BootstrapContextual(_log()),
}


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("check", ENVIRONMENT_CHECKS, ids=lambda check: check.__name__)
def test_environment(check: Any, name: str) -> None:
    check(EXAMPLES[name])


@pytest.mark.parametrize("name", EXAMPLES)
def test_means(name: str) -> None:
    """Error probability about 2e-9 for each of at most 6 arms of 25 environments; see the check."""
    check_means(EXAMPLES[name])


def test_no_environment_is_left_out() -> None:
    ours = {t for t in Environment.known.values() if t.__module__.startswith("zib.")}
    ours = {t for t in ours if not t.__module__.startswith("zib.experiments.")}
    assert ours <= {type(env) for env in EXAMPLES.values()}


# ------------------------------------------------------------------- environments that break a rule


class Wrong(GaussianMAB):
    """Says that it pays more than it does."""

    @property
    def arm_means(self) -> Any:  # type: ignore[override]
        return super().arm_means + 0.1


class Restless(RandomMAB):
    """Draws its instance from somewhere else."""

    calls = [0]

    def instance(self, rng: np.random.Generator) -> MAB:
        self.calls[0] += 1
        return super().instance(np.random.default_rng(self.calls[0]))


class Infinite(GaussianMAB):
    """Pays rewards that are not finite."""

    def sample(self, arm: int, rng: np.random.Generator, n: int) -> Any:
        return np.full(n, math.inf)


class Short(PathMAB):
    """Returns one round too few."""

    def round_block(self, rng: np.random.Generator, start: int, n: int) -> RoundBlock:
        return super().round_block(rng, start, max(n - 1, 0))


class Cut(PathMAB):
    """Draws arm by arm, so that rewards depend on how rounds are cut into blocks."""

    def round_block(self, rng: np.random.Generator, start: int, n: int) -> RoundBlock:
        probs, means = self.paths(start, n)
        return RoundBlock((probs > rng.random((2, n)).T) * means, probs * means)


class Biased(ContextualGLM):
    """States means that are too small."""

    def _draw(self, rng: np.random.Generator, block: ContextBlock) -> None:
        super()._draw(rng, block)
        block.mean[:] -= 0.2


class Twice(ContextualGLM):
    """Offers the same arm in all columns."""

    def _draw(self, rng: np.random.Generator, block: ContextBlock) -> None:
        super()._draw(rng, block)
        block.arms[:] = 0


class Forgetful(DisjointContextual):
    """Leaves a parameter out of what it says about itself."""

    def to_dict(self) -> dict[str, Any]:
        data = super().to_dict()
        del data["effect"]
        return data


PATH = {"probs": [[0.1, 0.2]], "means": [1.0, -1.0], "sigma": 0.5}
GLM_PARAMETERS = GLM.parameters()


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (Wrong([1.0], [0.5], 1.0), "arm 0 should pay 0.6 on average"),
        (Restless("gaussian"), "two instances from the same stream must pay the same"),
        (Infinite([1.0], [0.5], 1.0), "paid a reward that is not finite"),
        (Short(**PATH), "reward has shape"),
        (Cut(**PATH), "65 rounds must be the same in one block and in three"),
        (Biased(**GLM_PARAMETERS), "differ from their stated means"),
        (Twice(**GLM_PARAMETERS), "an arm is offered twice in a round"),
        (Forgetful(effect=0.9, n_arms=2), "is not rebuilt by from_dict"),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, Environment) else "",
)
def test_the_suite_notices(env: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_environment(env, draws=4000)
