"""What every multi-armed policy must keep to: one promise, one function with a name.

Nearly all checks run interpreted, which shows the same as compiled code, whose text is the same.
That the two agree is a check of its own, in the loop of the simulations and in a `Bandit`.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from zib.core import kernel
from zib.core.entry import interpreted
from zib.core.invariants import problem_in
from zib.core.state import arrays, copied
from zib.env import GaussianMAB, OutcomesMAB
from zib.online import Bandit
from zib.sim.loop import give_true_sizes, play
from zib.testing.specs import allowed, category_of, check_refusals, check_spec_is_data

History = list[tuple[int, float]]

_ENVIRONMENTS = {
    "dense": GaussianMAB(means=[1.0, 2.0, 1.5], probs=[0.3, 0.35, 0.3], sigma=0.5),
    "sparse": GaussianMAB(means=[4.0, 5.0, 4.0, 3.0], probs=[0.02, 0.01, 0.01, 0.03], sigma=1.0),
    "signed": GaussianMAB(means=[-1.0, 0.5, -0.2], probs=[0.5, 0.4, 0.9], sigma=1.0),
    "one arm": GaussianMAB(means=[1.0], probs=[0.5], sigma=1.0),
}
_TELLING = OutcomesMAB(  # what its categories pay overlaps
    values=[1.0, 2.0], probs=[[0.2, 0.1], [0.3, 0.05], [0.1, 0.2]], sigma=[1.0, 2.0]
)
_EXTREME: dict[str, Callable[[int], float]] = {  # what the j-th reward is
    "all zero": lambda j: 0.0,
    "never zero": lambda j: 1.0 + 0.1 * (j % 3),
    "all equal": lambda j: 0.5,
    "nearly equal": lambda j: 0.1 * (1 + j % 2 * 1e-16),
    "huge": lambda j: 1e100 if j % 2 else 0.0,
    "tiny": lambda j: 1e-100 if j % 2 else 0.0,
    "negative": lambda j: -1.0 if j % 2 else 0.0,
}
ROUNDS = 300


def check_policy(spec: Any, *, rounds: int = ROUNDS) -> None:
    """Check a registered policy against every promise of the library.

    Parameters
    ----------
    spec
        An instance of the policy's spec.
    rounds
        Length of the runs in which compiled and interpreted decisions are compared.
    """
    kernel.lookup(spec)
    for name in policy_checks_of(spec):
        if name == "compiled_code_decides_as_interpreted":
            compiled_code_decides_as_interpreted(spec, rounds)
        else:
            POLICY_CHECKS[name](spec)


def policy_checks_of(spec: Any) -> list[str]:
    """Return the names of the checks in `POLICY_CHECKS` that apply to this policy."""
    online = not getattr(spec, "needs_true_sizes", False)
    additive = online and kernel.is_additive(spec)
    return [
        name
        for name in POLICY_CHECKS
        if (online or name not in _ONLINE) and (additive or name not in _ADDITIVE)
    ]


# -------------------------------------------------------------------------------------- parameters


def spec_is_data(spec: Any) -> None:
    """A spec is rebuilt by its parameters, pickles and hashes."""
    check_spec_is_data(spec)


def wrong_parameters_are_refused(spec: Any) -> None:
    """Wrong parameters raise one sentence that names them."""
    check_refusals(spec)


# ---------------------------------------------------------------------------- deciding and learning


def _fresh(spec: Any, n_arms: int) -> tuple[Any, np.random.Generator, np.ndarray[Any, Any]]:
    state = kernel.init(spec, n_arms)
    if getattr(spec, "needs_true_sizes", False):
        instance = GaussianMAB(means=[1.0] * n_arms, probs=[0.3] * n_arms, sigma=1.0)
        give_true_sizes(spec, state, instance)
    return state, np.random.default_rng(7), np.zeros(n_arms)


def _some_rewards(spec: Any, n: int, n_arms: int) -> History:
    rng = np.random.default_rng(11)
    arms = np.concatenate([np.arange(n_arms), rng.integers(n_arms, size=n - n_arms)])
    rewards = np.where(rng.random(n) < 0.3, rng.normal(1.0, 1.0, n), 0.0)
    return [(int(a), allowed(spec, float(r))) for a, r in zip(arms, rewards, strict=True)]


def _learned(spec: Any, history: History, n_arms: int) -> Any:
    state, _, _ = _fresh(spec, n_arms)
    for arm, reward in history:
        kernel.update(spec, state, arm, reward)
    return state


def untried_arms_come_first(spec: Any) -> None:
    """Every arm is played once before any is played twice."""
    state, rng, out = _fresh(spec, 5)
    seen = []
    for _ in range(5):
        arm = kernel.choose(spec, state, rng, out)
        seen.append(int(arm))
        kernel.update(spec, state, arm, allowed(spec, 0.7))
    assert sorted(seen) == list(range(5)), f"untried arms must come first; played {seen}"


def deciding_learns_nothing(spec: Any) -> None:
    """`scores` does not change the state."""
    state = _learned(spec, _some_rewards(spec, 40, 4), 4)
    before = copied(state)
    rng, out = np.random.default_rng(7), np.zeros(4)
    for _ in range(20):
        kernel.choose(spec, state, rng, out)
    for (name, _, a), (_, _, b) in zip(arrays(before), arrays(state), strict=True):
        assert np.array_equal(a, b, equal_nan=True), f"`scores` must not change the state: {name}"


def learning_draws_nothing(spec: Any) -> None:
    """`update` draws no random numbers; it could only use the global Generator."""
    before = copy.deepcopy(np.random.get_state(legacy=False))  # noqa: NPY002
    _learned(spec, _some_rewards(spec, 40, 4), 4)
    after = np.random.get_state(legacy=False)  # noqa: NPY002
    assert str(before) == str(after), "`update` must not draw random numbers"


def extreme_rewards_give_no_nan(spec: Any) -> None:
    """Scores are numbers (or infinite) whatever the rewards were."""
    for name, reward_of in _EXTREME.items():
        state, rng, out = _fresh(spec, 3)
        for j in range(60):
            arm = kernel.choose(spec, state, rng, out)
            assert not np.isnan(out).any(), f"NaN score after a history that is {name}: {out}"
            kernel.update(spec, state, int(arm), allowed(spec, reward_of(j)))


def imagined_pulls_give_no_nan(spec: Any) -> None:
    """Nor in a batch, in which decisions count before their rewards return."""
    spread = kernel.spreads(spec)
    for name, reward_of in _EXTREME.items():
        for learned in (0, 1, 40):
            state, rng, out = _fresh(spec, 3)
            for j in range(learned):
                arm = kernel.choose(spec, state, rng, out)
                kernel.update(spec, state, int(arm), allowed(spec, reward_of(j)))
            for _ in range(20):
                arm = kernel.choose(spec, state, rng, out)
                assert not np.isnan(out).any(), f"NaN score in a batch, rewards {name}: {out}"
                kernel.count_as_usual(spec, state, int(arm), spread)


def a_thousand_arms_work(spec: Any) -> None:
    """Many arms are no special case."""
    state = _learned(spec, _some_rewards(spec, 1100, 1000), 1000)
    arm = kernel.choose(spec, state, np.random.default_rng(7), np.zeros(1000))
    assert 0 <= arm < 1000, f"chose arm {arm} of 1000"


def state_is_as_declared(spec: Any) -> None:
    """What is learned stays within what the state is declared to hold."""
    histories = {name: [(j % 4, f(j // 2)) for j in range(60)] for name, f in _EXTREME.items()}
    for name, history in {"plain": _some_rewards(spec, 80, 4), "empty": [], **histories}.items():
        state = _learned(spec, [(arm, allowed(spec, reward)) for arm, reward in history], 4)
        problem = problem_in(state)
        assert problem is None, f"the state after a history that is {name}: {problem}"


# -------------------------------------------------------------------------- compiled code, a Bandit


def compiled_code_decides_as_interpreted(spec: Any, rounds: int = ROUNDS) -> None:
    """Compiled simulations are those of the interpreter, bit for bit."""
    checkpoints = np.arange(1, rounds + 1, dtype=np.int64)
    told = {"told": _TELLING} if getattr(spec, "n_categories", 0) > 1 else {}
    for name, environment in (_ENVIRONMENTS | told).items():
        fast = play(spec, environment, checkpoints, 3, 0)
        slow = play(spec, environment, checkpoints, 3, 0, compiled=False)
        same = np.array_equal(fast.regret, slow.regret) and np.array_equal(fast.reward, slow.reward)
        assert same, f"compiled and interpreted runs part company on the {name} environment"
        assert fast.pulls.sum() == rounds, f"{fast.pulls.sum()} pulls recorded in {rounds} rounds"


def _trained(spec: Any, rewards: History) -> Bandit:
    bandit = Bandit(spec, n_arms=4, seed=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # beyond the horizon of the policy
        told: Any = [category_of(spec, r) for _, r in rewards]
        categories = None if None in told else told
        bandit.update_many([a for a, _ in rewards], [r for _, r in rewards], categories)
    return bandit


def _learn(bandit: Bandit, arm: Any, reward: float) -> None:
    value = allowed(bandit.spec, reward)
    bandit.update(arm, value, category_of(bandit.spec, value))


def compiled_bandit_decides_as_interpreted(spec: Any) -> None:
    """A `Bandit` in use decides and learns as the interpreter would."""
    rewards = _some_rewards(spec, 40, 4)
    with interpreted():
        slow = _trained(spec, rewards)
    fast = _trained(spec, rewards)
    for _ in range(10):
        mine, yours = fast.select(), slow.select()
        assert mine == yours, "compiled and interpreted bandits part company"
        _learn(fast, mine, 0.5)
        _learn(slow, yours, 0.5)
    assert fast.dumps() == slow.dumps(), "compiled and interpreted bandits learn differently"


def a_batch_learns_nothing(spec: Any) -> None:
    """`select_many` changes nothing, and decides the same after a restart."""
    with interpreted():
        bandit = _trained(spec, _some_rewards(spec, 40, 4))
        bandit.add_arm("new")
        twin, before = Bandit.loads(bandit.dumps()), bandit.state
        assert bandit.select_many(20) == twin.select_many(20), "a loaded bandit decides otherwise"
        for (name, _, a), (_, _, b) in zip(arrays(before), arrays(bandit.state), strict=True):
            assert a.tobytes() == b.tobytes(), f"`select_many` must not change the state: {name}"


def saved_bandit_goes_on(spec: Any) -> None:
    """A loaded bandit decides and learns as the saved one would have."""
    with interpreted():
        bandit = _trained(spec, _some_rewards(spec, 60, 4))
        twin = Bandit.loads(bandit.dumps())
        for _ in range(20):
            mine, yours = bandit.select(), twin.select()
            assert mine == yours, "a loaded bandit must decide as the saved one would have"
            _learn(bandit, mine, 0.5)
            _learn(twin, yours, 0.5)
    assert twin.dumps() == bandit.dumps(), "a loaded bandit must learn as the saved one would have"


def arms_come_and_go(spec: Any) -> None:
    """An added arm is played next; the statistics of the others stay with them."""
    with interpreted():
        bandit = _trained(spec, _some_rewards(spec, 60, 4))
        before = bandit.state
        bandit.remove_arm(1)
        bandit.add_arm("new")
        after = bandit.state
        for name in ("pulls", "nonzero", "total", "spread"):
            old, new = getattr(before, name)[[0, 2, 3]], getattr(after, name)
            assert np.array_equal(new, [*old, 0.0]), f"arms came and went, and {name} differs"
        problem = problem_in(after)
        assert problem is None, f"the state breaks its own declaration: {problem}"
        assert bandit.select() == "new", "an added arm must be played next"
        for label in ("new", 0, 2, 3):
            _learn(bandit, label, 1.0)
        assert not np.isnan(list(bandit.indices().values())).any(), "NaN score after an arm came"


def merged_halves_are_the_whole(spec: Any) -> None:
    """Two workers together know what one would who saw all rewards."""
    rewards = _some_rewards(spec, 80, 4)
    with interpreted():
        whole, first, second = (
            _trained(spec, part) for part in (rewards, rewards[::2], rewards[1::2])
        )
        first.merge(second)
        _assert_close(first, whole, "merged halves must equal the whole")


def revision_is_exact(spec: Any) -> None:
    """A revised reward counts as the new one, as if the old had never been."""
    rewards = _some_rewards(spec, 60, 4)
    late = allowed(spec, 0.9)
    changed = [*rewards[:10], (rewards[10][0], late), *rewards[11:]]
    with interpreted():
        revised = _trained(spec, rewards)
        revised.revise(rewards[10][0], rewards[10][1], late)
        wanted = _trained(spec, changed)
        _assert_close(revised, wanted, "a revised reward must count as the new one")


def _up_to_date(bandit: Bandit) -> Any:
    """Return the state; priors that are learned now and then only are learned now."""
    state = bandit.state
    if getattr(bandit.spec, "learns_late", False):
        kernel.refresh_all(bandit.spec, state)
    return state


def _assert_close(got: Bandit, wanted: Bandit, promise: str) -> None:
    found = kernel.lookup(got.spec)
    lazy = found.indices is not found.scores
    both = zip(arrays(_up_to_date(got)), arrays(_up_to_date(wanted)), strict=True)
    for (name, declaration, a), (_, _, b) in both:
        if lazy and name.startswith("own.") and not declaration.is_sum:
            continue  # bounds kept for later depend on when they were made; indices do not
        # the last digits of sums depend on their order, and so does what is derived from them
        assert np.allclose(a, b, rtol=1e-6, atol=1e-9, equal_nan=True), f"{promise}: {name} differs"
    if lazy:
        mine, theirs = (list(bandit.indices().values()) for bandit in (got, wanted))
        assert np.allclose(mine, theirs, rtol=1e-6, atol=1e-9), f"{promise}: indices differ"


_ADDITIVE = (merged_halves_are_the_whole.__name__, revision_is_exact.__name__)
_ONLINE = (
    compiled_bandit_decides_as_interpreted.__name__,
    a_batch_learns_nothing.__name__,
    saved_bandit_goes_on.__name__,
    arms_come_and_go.__name__,
    *_ADDITIVE,
)
# All public functions above but the two entry points, in the order they stand.
POLICY_CHECKS: dict[str, Callable[[Any], None]] = {
    name: function
    for name, function in list(globals().items())
    if inspect.isfunction(function)
    and function.__module__ == __name__
    and not name.startswith("_")
    and function not in (check_policy, policy_checks_of)
}
