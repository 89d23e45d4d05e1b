"""Indices and draws equal those of the slow oracle at every round."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests import naive

from zib import mab
from zib.core import kernel
from zib.mab.classics import set_true_sizes

ROUNDS, ARMS, T = 120, 4, 500


def rewards_of(rng: np.random.Generator, signed: bool) -> np.ndarray:
    probs = np.array([0.5, 0.1, 0.25, 0.9])
    means = np.array([-1.5, 0.4, 2.0, -0.3]) if signed else np.array([1.0, 3.0, 2.0, 0.7])
    paid = rng.random((ROUNDS, ARMS)) < probs
    return np.where(paid, rng.normal(means, 0.8, (ROUNDS, ARMS)), 0.0)


def follow(spec, oracle, rng, signed=False, sizes=None, rtol=1e-9, rounds=ROUNDS):
    """Play the policy; before every decision compare its scores with the oracle's."""
    table = rewards_of(rng, signed)
    state = kernel.init(spec, ARMS)
    if sizes is not None:
        set_true_sizes(state, sizes)
    histories: list[list[tuple[int, float]]] = [[] for _ in range(ARMS)]
    mine, theirs = np.random.default_rng(3), np.random.default_rng(3)
    out = np.zeros(ARMS)
    for t in range(1, rounds + 1):
        kernel.scores(spec, state, mine, out)
        wanted = oracle(histories, t, theirs)
        np.testing.assert_allclose(out, wanted, rtol=rtol, atol=1e-12, err_msg=f"round {t}")
        arm = kernel.argmax_random(out, np.random.default_rng(t))
        reward = float(table[t - 1, arm])
        kernel.update(spec, state, arm, reward)
        histories[arm].append((t, reward))


def values(history):
    return [reward for _, reward in history]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("radius", ["given_count", "subweibull"])
@pytest.mark.parametrize("occurrence", ["kl", "hoeffding"])
def test_zi_ucb(rng, radius, occurrence, signed) -> None:
    def oracle(histories, t, _):
        return naive.product_indices(
            [
                naive.zi_ucb_parts(values(h), T, 0.8, radius, occurrence) if h else None
                for h in histories
            ]
        )

    spec = mab.ZIUCB(horizon=T, sigma=0.8, radius=radius, occurrence=occurrence)
    follow(spec, oracle, rng, signed)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("epsilon", [0.4, 1.0])
def test_zi_heavy(rng, epsilon, signed) -> None:
    def oracle(histories, t, _):
        return naive.product_indices(
            [naive.heavy_parts(h, t, epsilon, 5.0) if h else None for h in histories]
        )

    follow(mab.ZIHeavyUCB(epsilon=epsilon, moment=5.0), oracle, rng, signed)


@pytest.mark.parametrize("signed", [False, True])
def test_zi_ts(rng, signed) -> None:
    def oracle(histories, t, stream):
        return naive.zi_ts_scores([values(h) for h in histories], stream, T, 0.8)

    follow(mab.ZITS(horizon=T, sigma=0.8), oracle, rng, signed)


@pytest.mark.parametrize("rule", ["component", "variance", "estimated", "true"])
def test_baseline_subgaussian(rng, rule) -> None:
    sizes = np.array([0.9, 1.1, 1.3, 0.7])

    def oracle(histories, t, _):
        return [
            naive.baseline_index(values(h), T, 0.8, rule, sizes[k]) if h else math.inf
            for k, h in enumerate(histories)
        ]

    spec = mab.UCB(horizon=T, sigma=0.8, size=rule)
    # the oracle of one rule looks for a maximum in every round
    rounds = 30 if rule == "estimated" else ROUNDS
    follow(spec, oracle, rng, sizes=sizes, rtol=1e-7, rounds=rounds)


@pytest.mark.parametrize(
    "rule", ["component", "variance", pytest.param("estimated", marks=pytest.mark.slow)]
)
def test_baseline_subexponential(rng, rule) -> None:
    def oracle(histories, t, _):
        return [
            naive.baseline_index_subexponential(values(h), T, 1.2, rule) if h else math.inf
            for h in histories
        ]

    spec = mab.UCB(horizon=T, tail=mab.SubExponential(1.2), size=rule)
    follow(spec, oracle, rng, rtol=1e-7)


def test_mots(rng) -> None:
    def oracle(histories, t, stream):
        out = []
        for h in histories:
            if not h:
                out.append(math.inf)
                continue
            n, mean = len(h), float(np.mean(values(h)))
            draw = stream.normal(mean, 0.8 / math.sqrt(0.9999 * n))
            cap = mean + 0.8 * math.sqrt(2.0 / n * max(math.log(T / (ARMS * n)), 0.0))
            out.append(min(draw, cap))
        return out

    follow(mab.MOTS(horizon=T, sigma=0.8), oracle, rng)


def test_classics(rng) -> None:
    def by(index):
        return lambda histories, t, stream: [
            index(values(h), max(t, 2), stream) if h else math.inf for h in histories
        ]

    follow(
        mab.UCB1(scale=3.0),
        by(lambda r, t, _: np.mean(r) + 3.0 * math.sqrt(2 * math.log(t) / len(r))),
        rng,
    )
    follow(
        mab.UCBV(scale=3.0),
        by(
            lambda r, t, _: (
                np.mean(r)
                + math.sqrt(2 * np.var(r) * math.log(t) / len(r))
                + 9.0 * math.log(t) / len(r)
            )
        ),
        rng,
    )
    follow(
        mab.NormalTS(sigma=0.8),
        by(lambda r, t, stream: stream.normal(np.mean(r), 0.8 / math.sqrt(len(r)))),
        rng,
    )

    def clipped(r):
        return np.clip(r, 0.0, 6.0)

    follow(
        mab.KLUCB(scale=6.0, c=3.0),
        by(
            lambda r, t, _: (
                6.0
                * naive.kl_upper(
                    clipped(r).mean() / 6.0,
                    len(r),
                    math.log(t) + 3.0 * max(math.log(math.log(t)), 0.0),
                )
            )
        ),
        rng,
    )
    follow(
        mab.BetaTS(scale=6.0),
        by(
            lambda r, t, stream: (
                6.0 * stream.beta(1 + clipped(r).sum() / 6.0, 1 + len(r) - clipped(r).sum() / 6.0)
            )
        ),
        rng,
    )
