"""After any error a bandit is as it was before, whoever raises it; and it serves one thread."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zib
from tests.fuzz import child
from tests.policies import ONLINE
from zib import InvalidParameterError, mab
from zib.core import entry, kernel
from zib.core.entry import interpreted
from zib.core.exact import ExactSums, add_reward, set_moments
from zib.core.invariants import problem_in
from zib.stats.arms import observe
from zib.testing.specs import allowed

UCB = mab.ZIUCB(horizon=1000, sigma=1.0)
ADDITIVE = {name: spec for name, spec in ONLINE.items() if kernel.is_additive(spec)}


def unchanged_after(bandit: Any, error: type[BaseException], words: str, act: Callable[[], Any]):
    before = bandit.dumps()
    with pytest.raises(error, match=words):
        act()
    assert bandit.dumps() == before
    return bandit


# ---------------------------------------------------------------------------------------- revising


@pytest.mark.parametrize("name", ADDITIVE)
def test_a_reward_that_was_never_learned_is_not_revised(name: str) -> None:
    spec = ADDITIVE[name]
    with interpreted():
        bandit = zib.Bandit(spec, arms=[*"ab"], seed=0)
        bandit.update_many([*"aaab"], [1.0, 2.0, 3.0, 0.0])
        wrong = (4.5, -1.0) if name in ("kl-ucb", "beta ts") else (77.0, -1.0)
        for old in wrong:
            if allowed(spec, old) == old:
                unchanged_after(
                    bandit,
                    InvalidParameterError,
                    r"`old` must be a reward learned for arm 'a', whose 3 non-zero rewards are in "
                    r"\[1, 3\] and have the mean 2; got",
                    lambda old=old: bandit.revise("a", old, 0.0),
                )


def test_what_the_other_rewards_rule_out_is_not_revised() -> None:
    with interpreted():
        bandit = zib.Bandit(UCB, arms=[*"ab"], seed=0)
        bandit.update_many([*"aab"], [1.0, 3.0, 5.0])
        # without 2 the other would be 2, whose square is not 6; without 4.9 arm b's would be 0.1
        for arm, old in (("a", 2.0), ("b", 4.9)):
            act = lambda arm=arm, old=old: bandit.revise(arm, old, 1.0)  # noqa: E731
            unchanged_after(bandit, InvalidParameterError, "`old` must be a reward learned", act)
        bandit.revise("a", 3.0, 2.0)
        assert bandit.means()["a"].magnitude == 1.5


@pytest.mark.parametrize("spec", [UCB, mab.ZIAdaptive(), mab.ZIPosterior()])
def test_the_spread_is_right_after_a_huge_reward_is_revised(spec: Any) -> None:
    rewards = np.random.default_rng(0).normal(50.0, 5.0, 300)
    with interpreted():
        bandit = zib.Bandit(spec, n_arms=2, seed=0)
        bandit.update_many([0] * 100, rewards[:100])
        bandit.update(0, 1e12)
        bandit.update_many([0] * 200, rewards[100:])
        bandit.revise(0, 1e12, 0.0)
        state = bandit.state
    np.testing.assert_allclose(state.total[0], rewards.sum(), rtol=1e-13)
    np.testing.assert_allclose(state.spread[0], ((rewards - rewards.mean()) ** 2).sum(), rtol=1e-7)


VALUES = st.sampled_from([0.1, 0.3, -7.25, 1e-3, 50.0, 1e9, 1e12, -1e15, 3.0, 1.0 / 3.0])


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(VALUES, st.booleans()), min_size=2, max_size=30))
def test_exact_sums_are_those_of_fractions(history: list[tuple[float, bool]]) -> None:
    with interpreted():
        bandit = zib.Bandit(mab.UCB1(), n_arms=1, seed=0)
    sums, state, kept = ExactSums.new({"arms": 1}), bandit.state, []
    for value, stays in history:
        add_reward(sums, 0, value, 1.0)
        if stays:
            kept.append(value)
    for value, stays in reversed(history):
        if not stays:
            add_reward(sums, 0, value, -1.0)
    state.nonzero[0] = len(kept)
    set_moments(state, sums, 0)
    exact = [Fraction(value) for value in kept]
    mean = sum(exact) / max(len(kept), 1)
    spread = float(sum((x - mean) ** 2 for x in exact))
    largest = max(abs(value) for value, _ in history)
    # 2^-98 of the largest square for each reward, as the docstring says
    assert abs(state.spread[0] - spread) <= 1e-15 * spread + 2.0**-98 * largest**2 * len(history)
    assert abs(state.total[0] - float(sum(exact))) <= 1e-13 * abs(float(sum(exact))) + (
        2.0**-98 * largest * len(history)
    )


def test_files_of_before_have_no_exact_sums_and_are_revised_all_the_same() -> None:
    import json

    from zib.core import saved

    with interpreted():
        bandit = zib.Bandit(UCB, arms=[*"ab"], seed=0)
        bandit.update_many([*"aaab"], [1.0, 2.0, 3.0, 0.0])
        content = json.loads(bandit.dumps())
        del content["checksum"], content["sums"]
        old = zib.Bandit.loads(saved.dumps(content))
        old.revise("a", 3.0, 0.0)
        assert old.means()["a"].magnitude == 1.5
        assert old.state.spread[0] == pytest.approx(0.5)
        act = lambda: old.revise("a", 77.0, 0.0)  # noqa: E731
        unchanged_after(old, InvalidParameterError, "`old` must be a reward learned", act)


# ----------------------------------------------------------------------------------- tiny rewards


@pytest.mark.parametrize("reward", [1e-300, -1e-200, 5e-324])
def test_rewards_whose_squares_vanish_are_refused(reward: float) -> None:
    bandit = zib.Bandit(n_arms=2, seed=0)  # compiled: the policy that raised half way
    bandit.update(0, 0.0)
    words = "`rewards?` must be 0 or differ from it by at least 1e-100; got"
    unchanged_after(bandit, InvalidParameterError, words, lambda: bandit.update(0, reward))
    act = lambda: bandit.update_many([0, 1], [1.0, reward])  # noqa: E731
    unchanged_after(bandit, InvalidParameterError, words, act)


def test_the_smallest_rewards_are_learned() -> None:
    compiled = zib.Bandit(n_arms=2, seed=0)
    with interpreted():
        plain = zib.Bandit(n_arms=2, seed=0)
    for j in range(40):
        reward = 1e-100 * (1 + j % 3)
        compiled.update(j % 2, reward)
        with interpreted():
            plain.update(j % 2, reward)
    assert compiled.dumps() == plain.dumps()
    assert problem_in(compiled.state) is None


# ------------------------------------------------------------------------- kernels that raise, ours


class Fragile(zib.Spec):
    """Learns, then fails at a reward of 13 when half of it is done."""


def _fragile_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    for k in range(out.size):
        out[k] = state.total[k] + rng.standard_normal()
        if state.total[k] == 26.0:
            raise ValueError("no score")


def _fragile_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, reward)
    if reward == 13.0:
        raise ValueError("half way")


zib.register(Fragile, scores=_fragile_scores, update=_fragile_update, additive=True)


def _failures(bandit: zib.Bandit) -> None:
    bandit.update_many([0, 1, 1], [1.0, 2.0, 0.0])
    for _ in range(300):  # more than are kept to be repeated
        bandit.update(1, 0.5)
    unchanged_after(bandit, ValueError, "half way", lambda: bandit.update(0, 13.0))
    act = lambda: bandit.update_many([0, 1, 1], [1.0, 13.0, 2.0])  # noqa: E731
    unchanged_after(bandit, ValueError, "half way", act)
    bandit.update(0, 25.0)
    unchanged_after(bandit, ValueError, "no score", bandit.select)


def test_a_kernel_that_raises_half_way_leaves_nothing_behind() -> None:
    _failures(zib.Bandit(Fragile(), n_arms=2, seed=0))
    with interpreted():
        _failures(zib.Bandit(Fragile(), n_arms=2, seed=0))


@pytest.mark.parametrize("change", ["add_arm", "remove_arm", "merge", "revise"])
def test_changes_that_fail_leave_nothing_behind(change: str, monkeypatch: Any) -> None:
    def fails(*arguments: Any) -> None:
        raise FloatingPointError("refreshing")

    with interpreted():
        bandit = zib.Bandit(UCB, arms=[*"abc"], seed=0)
        bandit.update_many([*"aabc"], [1.0, 0.0, 2.0, 0.0])
        other = zib.Bandit.loads(bandit.dumps())
        monkeypatch.setattr(entry.refresh, "interpreted", fails)
        monkeypatch.setattr(entry.refresh_all, "interpreted", fails)
        acts: dict[str, Callable[[], None]] = {
            "add_arm": lambda: bandit.add_arm("d"),
            "remove_arm": lambda: bandit.remove_arm("a"),
            "merge": lambda: bandit.merge(other),
            "revise": lambda: bandit.revise("a", 1.0, 3.0),
        }
        unchanged_after(bandit, FloatingPointError, "refreshing", acts[change])


def test_a_warning_that_is_an_error_comes_before_anything_is_learned() -> None:
    with interpreted(), warnings.catch_warnings():
        warnings.simplefilter("error")
        bandit = zib.Bandit(mab.ZITS(horizon=2, sigma=1.0), n_arms=2, seed=0)
        bandit.update_many([0, 1], [1.0, 1.0])
        unchanged_after(bandit, UserWarning, "horizon of 2", lambda: bandit.update(0, 1.0))
        bandit.update(0, 1.0)


# ------------------------------------------------------------------------------- one at a time


def _removing(bandit: zib.Bandit) -> Iterator[str]:
    yield "a"
    yield "d"
    bandit.remove_arm("d")
    yield "c"


def _batch_that_removes(_: int) -> None:
    bandit = zib.Bandit(UCB, arms=[*"abcd"], seed=0)
    bandit.update_many([*"abcd"], [1.0, 0.0, 2.0, 0.0])
    with pytest.raises(InvalidParameterError, match="`arms` must be one of .*; got 'd'"):
        bandit.update_many(_removing(bandit), [1.0, 1.0, 1.0])
    assert bandit.pulls == {"a": 1, "b": 1, "c": 1}
    bandit.update_many((bandit.select() for _ in range(3)), [1.0, 0.0, 1.0])  # allowed
    assert sum(bandit.pulls.values()) == 6


def test_a_batch_whose_arms_are_removed_meanwhile_is_refused() -> None:
    zib.Bandit(UCB, arms=[*"ab"], seed=0).update_many(
        [*"ab"], [1.0, 0.0]
    )  # compiled before the fork
    assert child.run([0], _batch_that_removes, 60.0, 60.0) == 1


def _mixed_threads(seconds: float) -> None:
    arms = list(range(200))
    bandit = zib.Bandit(UCB, arms=arms, seed=np.random.Generator(np.random.MT19937(1)))
    bandit.update_many(arms, [1.0] * len(arms))
    stop = threading.Event()
    unexpected: list[BaseException] = []
    refused = [0]

    def repeat(act: Callable[[np.random.Generator], Any], seed: int) -> None:
        rng = np.random.default_rng(seed)
        while not stop.is_set():
            try:
                act(rng)
            except RuntimeError as error:
                refused[0] += 1
                if "one thread at a time" not in str(error):
                    unexpected.append(error)
            except InvalidParameterError:
                pass  # the arm is gone, is there already, or is the last
            except BaseException as error:
                unexpected.append(error)

    acts: list[Callable[[np.random.Generator], Any]] = [
        lambda rng: bandit.update(int(rng.integers(200)), float(rng.integers(3))),
        lambda rng: bandit.update_many(rng.integers(200, size=500).tolist(), np.ones(500)),
        lambda rng: bandit.remove_arm(int(rng.integers(200))),
        lambda rng: bandit.add_arm(int(rng.integers(200))),
        lambda rng: bandit.select(),
        lambda rng: bandit.dumps(),
    ]
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=repeat, args=(act, i)) for i, act in enumerate(acts)]
    for thread in threads:
        thread.start()
    stop.wait(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    assert not unexpected, unexpected[:3]
    assert refused[0] > 0
    assert problem_in(bandit.state) is None
    assert zib.Bandit.loads(bandit.dumps()).dumps() == bandit.dumps()


def test_threads_that_share_a_bandit_get_errors_and_no_damage() -> None:
    bandit = zib.Bandit(UCB, arms=[*"ab"], seed=np.random.Generator(np.random.MT19937(1)))
    bandit.update_many([*"ab"], [1.0, 0.0])
    bandit.update(bandit.select(), 1.0)
    bandit.add_arm("c")
    assert child.run([1.5], _mixed_threads, 60.0, 60.0) == 1


def test_a_bandit_in_use_says_so() -> None:
    with interpreted():
        bandit = zib.Bandit(UCB, arms=[*"ab"], seed=0)
        with bandit._alone():
            for act in (bandit.select, bandit.dumps, bandit.indices, lambda: bandit.update("a", 1)):
                with pytest.raises(RuntimeError, match="one thread at a time; give each thread"):
                    act()
        bandit.update(bandit.select(), 1.0)


# ------------------------------------------------------------------------------------ with features


class FragileMeans(zib.Spec):
    """A contextual policy that fails at a reward of 13 when half of it is learned."""


class Sums(NamedTuple):
    total: Any
    count: Any


def _sums_scores(
    spec: Any, state: Any, arms: Any, z: Any, w: Any, rng: Any, work: Any, out: Any
) -> None:
    for k in range(out.size):
        out[k] = state.total[0] * z[0, k]


def _sums_update(spec: Any, state: Any, arm: int, z: Any, w: Any, reward: float) -> None:
    state.total[0] += reward * z[0]
    if reward == 13.0:
        raise ValueError("half way")
    state.count[0] += 1.0


zib.contextual.register_policy(
    FragileMeans,
    init=lambda spec, d, q: Sums(np.zeros(1), np.zeros(1)),
    scores=_sums_scores,
    update=_sums_update,
    moments=lambda *arguments: None,
)


def test_a_contextual_kernel_that_raises_half_way_leaves_nothing_behind() -> None:
    features = np.array([[1.0], [2.0], [3.0]])
    with interpreted():
        bandit = zib.ContextualBandit(FragileMeans(), n_features=1, seed=0)
        for row in (0, 1, 2):
            bandit.update(row, 0.1, features)
        features[:] = 7.0  # the caller's memory is used again
        unchanged_after(bandit, ValueError, "half way", lambda: bandit.update(0, 13.0, features))
        act = lambda: bandit.update_many([0, 0, 0], [1.0, 13.0, 2.0], features)  # noqa: E731
        unchanged_after(bandit, ValueError, "half way", act)
        assert bandit.state.total[0] == pytest.approx(0.6)


def test_a_contextual_bandit_in_use_says_so() -> None:
    features = np.ones((2, 1))
    with interpreted():
        bandit = zib.ContextualBandit(FragileMeans(), n_features=1, seed=0)
        with bandit._alone():
            for act in (
                lambda: bandit.select(features),
                lambda: bandit.update(0, 1.0, features),
                lambda: bandit.update_many([0, 0], [1.0, 2.0], features),
                bandit.dumps,
            ):
                with pytest.raises(RuntimeError, match="one thread at a time"):
                    act()
        bandit.update(bandit.select(features), 1.0, features)
