"""Feature maps: what the columns are, and that they mean what the docstrings say."""

from __future__ import annotations

import numpy as np
import pytest

import zib
from zib.contextual import encode
from zib.core.entry import interpreted


def test_shared_features_are_all_products_up_to_second_order(rng) -> None:
    context, arms = rng.normal(size=3), rng.normal(size=(4, 2))
    found = encode.shared(context, arms)
    for row, arm in zip(found, arms, strict=True):
        products = np.kron(np.append(1.0, context), np.append(1.0, arm))
        assert np.allclose(np.sort(row), np.sort(products))
    assert found.shape == (4, (1 + 3) * (1 + 2))


def test_a_context_without_interactions_moves_all_actions_alike(rng) -> None:
    arms, coef = rng.normal(size=(5, 2)), rng.normal(size=1 + 3 + 2)
    first, second = (
        encode.shared(context, arms, interactions=False) @ coef
        for context in rng.normal(size=(2, 3))
    )
    assert np.allclose(first - second, (first - second)[0])


@pytest.mark.parametrize("intercept", [True, False])
def test_disjoint_is_one_linear_model_per_arm(rng, intercept) -> None:
    n_arms, context = 4, rng.normal(size=3)
    row = np.append(1.0, context) if intercept else context
    coefs = rng.normal(size=(n_arms, row.size))
    found = encode.disjoint(context, n_arms, intercept=intercept)
    assert np.allclose(found @ coefs.ravel(), coefs @ row)
    some = encode.disjoint(context, n_arms, arms=[3, 1], intercept=intercept)
    assert np.array_equal(some, found[[3, 1]])


def test_a_context_of_its_own_for_every_action(rng) -> None:
    contexts, arms = rng.normal(size=(4, 3)), rng.normal(size=(4, 2))
    for k in range(4):
        assert np.array_equal(encode.shared(contexts, arms)[k], encode.shared(contexts[k], arms)[k])
        assert np.array_equal(encode.disjoint(contexts, 4)[k], encode.disjoint(contexts[k], 4)[k])


def test_hybrid_is_both(rng) -> None:
    context, common = rng.normal(size=3), rng.normal(size=(2, 5))
    found = encode.hybrid(context, common, 6, arms=[4, 0])
    assert np.array_equal(found[:, :5], common)
    assert np.array_equal(found[:, 5:], encode.disjoint(context, 6, arms=[4, 0]))


def test_one_rule_for_intercepts(rng) -> None:
    """What makes features puts a 1 in front; what decides by them adds nothing, but `Adaptive`."""
    context, arms = rng.normal(size=2), rng.normal(size=(3, 2))
    encoder = zib.Encoder().fit({"a": [1.0, 2.0], "b": [0.0, 5.0]})
    assert encoder.transform({"a": 1.0, "b": 1.0})[0] == 1.0
    assert (encode.shared(context, arms)[:, 0] == 1.0).all()
    blocks = encode.disjoint(context, 3)
    assert (blocks[range(3), [0, 3, 6]] == 1.0).all()
    assert np.array_equal(encode.hybrid(context, arms, 3)[:, 2:], blocks)
    with interpreted():
        adaptive = zib.contextual.Adaptive(n_arms=2)
        for spec, size in ((None, 2), (adaptive, 3), (zib.contextual.LaplaceTS(), 2)):
            bandit = zib.ContextualBandit(spec, n_features=2)
            bandit.update(0, 1.0, [[3.0, 0.5], [3.0, 0.5]])
            arms = getattr(bandit.state, "arms", bandit.state)
            assert arms.occurrence.coef.shape[-1] == arms.magnitude.coef.shape[-1] == size


def test_integers_and_lists_are_numbers_too() -> None:
    assert encode.disjoint([1, 2], 2).dtype == np.float64
    assert encode.shared((1, 2), [[1], [2]]).dtype == np.float64


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: encode.shared([1.0], [1.0, 2.0]), "`arm_features` must be a non-empty matrix"),
        (lambda: encode.shared([np.nan], [[1.0]]), "`context` must lie in .*got nan"),
        (lambda: encode.shared(["x"], [[1.0]]), "`context` must hold numbers"),
        (lambda: encode.shared([], [[1.0]]), "`context` must be one vector"),
        (lambda: encode.shared([[1.0]] * 3, [[1.0]] * 2), "one row per action, 2; got shape"),
        (lambda: encode.disjoint([1.0], 0), "`n_arms` must lie in"),
        (lambda: encode.disjoint([1.0], 2, arms=[2]), "`arms` must lie in .*got 2"),
        (lambda: encode.disjoint([1.0], 2, arms=[0.5]), "`arms` must be whole numbers"),
        (lambda: encode.disjoint([1.0], 2, arms=[]), "`arms` must be whole numbers"),
        (lambda: encode.hybrid([1.0], [[1.0]], 2), "one row per action, 2; got 1"),
    ],
)
def test_bad_input_is_named(make, message) -> None:
    with pytest.raises(zib.InvalidParameterError, match=message):
        make()
