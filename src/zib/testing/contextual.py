"""What every contextual policy must keep to: one promise, one function with a name."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.contextual import entry, policy
from zib.contextual.policy import COVARIANCE, ETA, ZETA
from zib.core import kernel
from zib.core.saved import SavedStateError
from zib.core.saved import dumps as saved_text
from zib.online import ContextualBandit
from zib.testing.specs import allowed, category_of, check_refusals, check_spec_is_data

Matrix = NDArray[np.float64]
Reward = Callable[[np.random.Generator, Matrix, int], float]


D, Q, ROUNDS = 4, 3, 150  # features of the magnitude and of the occurrence; length of runs


def check_contextual_policy(spec: Any, d: int = D, q: int = Q, *, rounds: int = ROUNDS) -> None:
    """Check a registered contextual policy against every promise of the library.

    Parameters
    ----------
    spec
        An instance of the policy's spec.
    d, q
        Numbers of features of the magnitude and of the occurrence.
    rounds
        Length of the runs in which compiled and interpreted decisions are compared.
    """
    policy.lookup_policy(spec)
    for name in contextual_checks_of(spec):
        CONTEXTUAL_CHECKS[name](spec, d, q, rounds)


def contextual_checks_of(spec: Any) -> list[str]:
    """Return the names of the checks in `CONTEXTUAL_CHECKS` that apply to this policy."""
    compiled = not kernel.is_interpreted(spec)
    return [name for name in CONTEXTUAL_CHECKS if compiled or name not in _OF_DATA]


# ------------------------------------------------------------------------------------------ scenes


class _Scene(NamedTuple):
    name: str
    d: int
    q: int
    rounds: int
    actions: tuple[int, int]  # fewest and most
    reward: Reward
    shape: Callable[[Matrix], Matrix] = np.array
    seed: int = 3


def _pays(share: float, low: float = 0.5, high: float = 1.5) -> Reward:
    def reward(rng: np.random.Generator, z: Matrix, row: int) -> float:
        paid = rng.random() < share
        size = rng.uniform(low, high) * (1.0 + 0.1 * float(z[row, 0]))
        return size if paid else 0.0

    return reward


def _pays_by_sign(rng: np.random.Generator, z: Matrix, row: int) -> float:
    return rng.uniform(0.5, 1.5) if z[row, 0] > 0.0 else 0.0


def _collinear(rows: Matrix) -> Matrix:
    return rows[:, :1] * np.arange(1.0, rows.shape[1] + 1.0)


def _dense(d: int, q: int, rounds: int) -> _Scene:
    return _Scene("dense", d, q, rounds, (2, 7), _pays(0.4))


def _scenes(d: int, q: int, rounds: int) -> list[_Scene]:
    few = max(rounds // 3, 1)
    return [
        _dense(d, q, rounds),
        _Scene("sparse", d, q, rounds, (2, 7), _pays(0.04)),
        _Scene("never paid", d, q, few, (2, 7), _pays(0.0)),
        _Scene("always paid", d, q, rounds, (2, 7), _pays(1.0)),
        _Scene("perfectly separated", d, q, rounds, (2, 7), _pays_by_sign),
        _Scene("negative rewards", d, q, few, (2, 7), _pays(0.5, -2.0, 0.5)),
        _Scene("collinear features", d, q, few, (2, 7), _pays(0.4), _collinear),
        _Scene("constant features", d, q, few, (2, 7), _pays(0.4), np.ones_like),
        _Scene("zero features", d, q, few, (2, 7), _pays(0.4), np.zeros_like),
        _Scene("one feature", 1, 1, few, (2, 7), _pays(0.4)),
        _Scene("one action", d, q, few, (1, 1), _pays(0.4)),
        _Scene("300 actions", d, q, 4, (300, 300), _pays(0.4)),
    ]


# ----------------------------------------------------------------------------------------- playing


class _Played(NamedTuple):
    rows: list[int]
    scores: list[Matrix]
    state: Any
    pin: Any
    space: entry.Buffers


def _ids(spec: Any, n: int) -> NDArray[np.int64]:
    n_arms = getattr(spec, "n_arms", None)
    return np.arange(n) if n_arms is None else np.arange(n) % int(n_arms)


def _features(rng: np.random.Generator, scene: _Scene) -> tuple[Matrix, Matrix]:
    low, high = scene.actions
    n = int(rng.integers(low, high + 1))
    z, w = (scene.shape(rng.normal(size=(n, width))) for width in (scene.d, scene.q))
    return np.ascontiguousarray(z), np.ascontiguousarray(w)


def _play(spec: Any, scene: _Scene, *, compiled: bool) -> _Played:
    """Play a scene through the entry points; its world does not depend on who plays."""
    state = policy.init(spec, scene.d, scene.q)
    space = entry.buffers(scene.actions[1], scene.d, scene.q)
    rng = np.random.default_rng(7)
    if compiled:
        pin = entry.pin(spec, state, rng, space)
        select, learn = entry.select_arms.for_spec(spec), entry.learn.for_spec(spec)
    else:
        pin = entry.loose_pin(spec, state, rng, space)
        select, learn = entry.select_arms.interpreted, entry.learn.interpreted
    rows, scores = [], []
    for t in range(scene.rounds):
        world = np.random.default_rng((scene.seed, t))
        z, w = _features(world, scene)
        ids = _ids(spec, len(z))
        row = int(select(pin, ids, z, w))
        rows.append(row)
        scores.append(space.out[: len(z)].copy())
        reward = allowed(spec, scene.reward(world, z, row))
        learn(pin, int(ids[row]), z, w, row, reward, category_of(spec, reward) or 0)
    return _Played(rows, scores, state, pin, space)


def _parts(state: Any) -> list[tuple[str, Any]]:
    """Return the arrays (or Python objects) of a state, with their names."""
    found: list[tuple[str, Any]] = []

    def walk(part: Any, name: str) -> None:
        if isinstance(part, tuple):
            names = getattr(part, "_fields", range(len(part)))
            for key, item in zip(names, part, strict=True):
                walk(item, f"{name}.{key}")
        else:
            found.append((name, part))

    walk(state, "state")
    return found


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b, equal_nan=True)
    # once around first: an object that was pickled before shares other parts of itself
    first, second = (pickle.dumps(pickle.loads(pickle.dumps(part))) for part in (a, b))
    return first == second


def _different(a: Any, b: Any) -> list[str]:
    """Return the names of the parts of two states that differ in a bit."""
    pairs = zip(_parts(a), _parts(b), strict=True)
    return [name for (name, x), (_, y) in pairs if not _same(x, y)]


def _load(spec: Any, pin: Any, z: Matrix, w: Matrix) -> NDArray[np.int64]:
    entry.load.for_spec(spec)(pin, z, w)
    return _ids(spec, len(z))


def _moments(spec: Any, pin: Any, z: Matrix, w: Matrix) -> Matrix:
    ids = _load(spec, pin, z, w)
    out = np.zeros((5, len(z)))
    entry.moments.for_spec(spec)(pin, ids, out)
    return out


def _some_features(d: int, q: int, n: int, seed: int = 5) -> tuple[Matrix, Matrix]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(n, q))


def _trained(spec: Any, d: int, q: int, rounds: int) -> _Played:
    return _play(spec, _dense(d, q, rounds), compiled=True)


def _history(spec: Any, d: int, q: int, n: int) -> tuple[Any, Matrix, Matrix, Matrix]:
    rng = np.random.default_rng(11)
    z, w = rng.normal(size=(n, d)), rng.normal(size=(n, q))
    rewards = np.where(rng.random(n) < 0.4, rng.normal(1.0, 1.0, n), 0.0)
    return _ids(spec, n), z, w, np.array([allowed(spec, r) for r in rewards])


def _bandit(spec: Any, d: int, q: int) -> ContextualBandit:
    return ContextualBandit(spec, n_features=(d, q), seed=5)


def _taught(spec: Any, d: int, q: int) -> ContextualBandit:
    ids, z, w, rewards = _history(spec, d, q, 60)
    bandit = _bandit(spec, d, q)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        bandit.update_many(ids.tolist(), rewards, (z, w), _categories(spec, rewards))
    return bandit


def _categories(spec: Any, rewards: Matrix) -> Any:
    told = [category_of(spec, reward) for reward in rewards.tolist()]
    return None if None in told else told


# ---------------------------------------------------------------------------------------- promises


def spec_is_data(spec: Any, d: int = D, q: int = Q, rounds: int = ROUNDS) -> None:
    """A spec is rebuilt by its parameters, pickles and hashes."""
    check_spec_is_data(spec)


def wrong_parameters_are_refused(spec: Any, d: int = D, q: int = Q, rounds: int = ROUNDS) -> None:
    """Wrong parameters raise one sentence that names them."""
    check_refusals(spec)


def compiled_code_decides_as_interpreted(
    spec: Any, d: int = D, q: int = Q, rounds: int = ROUNDS
) -> None:
    """In all kinds of worlds, no score is NaN and compiled code does what the interpreter does."""
    for scene in _scenes(d, q, rounds):
        _check_scene(spec, scene, compiles=not kernel.is_interpreted(spec))


def _check_scene(spec: Any, scene: _Scene, compiles: bool) -> None:
    fast = _play(spec, scene, compiled=True)
    for t, scores in enumerate(fast.scores):
        assert not np.isnan(scores).any(), (
            f"NaN score in round {t} of the scene '{scene.name}': {scores}"
        )
    if not compiles:
        return
    slow = _play(spec, scene, compiled=False)
    for t, (a, b) in enumerate(zip(fast.scores, slow.scores, strict=True)):
        assert np.array_equal(a, b), (
            f"compiled and interpreted scores part company in round {t} of the scene "
            f"'{scene.name}': {a} and {b}"
        )
    assert fast.rows == slow.rows, (
        f"compiled and interpreted runs choose differently in the scene '{scene.name}'"
    )
    changed = _different(fast.state, slow.state)
    assert not changed, (
        f"compiled and interpreted runs learn differently in the scene '{scene.name}': {changed}"
    )


def deciding_learns_nothing(spec: Any, d: int = D, q: int = Q, rounds: int = ROUNDS) -> None:
    """`scores` and `moments` leave the state as it is."""
    trained = _trained(spec, d, q, rounds)
    before = copy.deepcopy(trained.state)
    z, w = _some_features(d, q, 5)
    rng = np.random.default_rng(1)
    space = entry.buffers(5, d, q)
    pin = entry.loose_pin(spec, trained.state, rng, space)
    for _ in range(20):
        entry.select_arms.interpreted(pin, _ids(spec, 5), z, w)
    entry.moments.interpreted(pin, _ids(spec, 5), np.zeros((5, 5)))
    changed = _different(before, trained.state)
    assert not changed, f"`scores` and `moments` must not change the state; changed: {changed}"


def drawing_again_is_drawing_anew(spec: Any, d: int = D, q: int = Q, rounds: int = ROUNDS) -> None:
    """`scores_again` writes what `scores` would have written, from the same stream."""
    state, n = _trained(spec, d, q, rounds).state, 5
    z, w = (np.ascontiguousarray(rows.T) for rows in _some_features(d, q, n))
    found = []
    for scores in (policy.scores, policy.scores_again):
        rng, work, out = np.random.default_rng(1), policy.scratch(n, d, q), np.zeros(n)
        policy.scores(spec, state, _ids(spec, n), z, w, rng, work, out)
        for _ in range(10):
            scores(spec, state, _ids(spec, n), z, w, rng, work, out)
            found.append(out.copy())
    assert np.array_equal(found[:10], found[10:], equal_nan=True), (
        "`scores_again` must write what `scores` would have written"
    )


def learning_draws_nothing(spec: Any, d: int = D, q: int = Q, rounds: int = ROUNDS) -> None:
    """`update` draws no random numbers, and the same rewards teach the same."""
    # `update` has no Generator, so it could only draw from the global one
    ids, z, w, rewards = _history(spec, d, q, 40)
    before = copy.deepcopy(np.random.get_state(legacy=False))  # noqa: NPY002
    states = [policy.init(spec, d, q) for _ in range(2)]
    for state in states:
        for i in range(ids.size):
            told = category_of(spec, float(rewards[i])) or 0
            policy.learn(spec, state, int(ids[i]), z[i], w[i], float(rewards[i]), told)
    after = np.random.get_state(legacy=False)  # noqa: NPY002
    assert str(before) == str(after), "`update` must not draw random numbers"
    changed = _different(*states)
    assert not changed, f"the same rewards must teach the same; different: {changed}"


def order_of_actions_does_not_matter(
    spec: Any, d: int = D, q: int = Q, rounds: int = ROUNDS
) -> None:
    """The score of an action is the same wherever it stands among the others."""
    if policy.draws_randomly(spec):
        return
    trained = _trained(spec, d, q, rounds)
    n = 37
    z, w = _some_features(d, q, n)
    ids = _ids(spec, n)
    order = np.random.default_rng(2).permutation(n)
    pin = entry.pin(spec, trained.state, np.random.default_rng(1), entry.buffers(n, d, q))
    found = []
    for chosen in (np.arange(n), order):
        _load(spec, pin, z[chosen], w[chosen])
        out = np.zeros(n)
        entry.scores.for_spec(spec)(pin, ids[chosen], out)
        found.append(out)
    assert np.array_equal(found[0][order], found[1]), (
        "the score of an action must not depend on the place it stands in"
    )


def zeros_leave_the_magnitude(spec: Any, d: int = D, q: int = Q, rounds: int = ROUNDS) -> None:
    """A zero teaches a separate model of the magnitude nothing."""
    trained = _trained(spec, d, q, rounds)
    z, w = _some_features(d, q, 6)
    before = _moments(spec, trained.pin, z, w)
    separate = not np.isnan(before[ETA]).any() and not before[COVARIANCE].any()
    if not separate or allowed(spec, 0.0) != 0.0:
        return
    learn = entry.update.for_spec(spec)
    for i in range(20):
        learn(trained.pin, int(_ids(spec, 6)[i % 6]), z, w, i % 6, 0.0)
    after = _moments(spec, trained.pin, z, w)
    assert np.array_equal(before[ZETA], after[ZETA]), (
        "a zero says nothing about the magnitude, but its estimate moved by "
        f"{np.abs(before[ZETA] - after[ZETA]).max():g}"
    )


def features_may_be_tiny_or_huge(spec: Any, d: int = D, q: int = Q, rounds: int = ROUNDS) -> None:
    """Scores and moments stay finite with features of any size."""
    for size in (1e-8, 1e8):
        _check_extreme_features(spec, d, q, size)


def _check_extreme_features(spec: Any, d: int, q: int, size: float) -> None:
    def shape(rows: Matrix) -> Matrix:
        return rows * size

    scene = _Scene(f"features of size {size:g}", d, q, 60, (2, 7), _pays(0.4), shape)
    played = _play(spec, scene, compiled=True)
    for t, scores in enumerate(played.scores):
        assert np.isfinite(scores).all(), f"scores in round {t} with {scene.name}: {scores}"
    z, w = (shape(part) for part in _some_features(d, q, 6))
    found = _moments(spec, played.pin, z, w)
    rows = found[ZETA:] if np.isnan(found[ETA]).all() else found
    assert np.isfinite(rows).all(), f"moments with {scene.name}: {found}"


def batch_is_its_rewards(spec: Any, d: int = D, q: int = Q, rounds: int = ROUNDS) -> None:
    """A batch teaches what its rewards teach one by one."""
    ids, z, w, rewards = _history(spec, d, q, 40)
    single, batch = _bandit(spec, d, q), _bandit(spec, d, q)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for i in range(ids.size):
            reward = float(rewards[i])
            told = category_of(spec, reward)
            single.update(int(ids[i]), reward, (z[i], w[i]), category=told)
        batch.update_many(ids.tolist(), rewards, (z, w), _categories(spec, rewards))
    changed = _different(single.state, batch.state)
    assert not changed, f"a batch must teach what its rewards teach one by one; not so: {changed}"


def pickled_bandit_goes_on(spec: Any, d: int = D, q: int = Q, rounds: int = ROUNDS) -> None:
    """A pickled bandit decides and learns as it would have without."""
    _check_kept_bandit_goes_on(spec, d, q, lambda b: pickle.loads(pickle.dumps(b)), "pickled")


def saved_bandit_goes_on(spec: Any, d: int = D, q: int = Q, rounds: int = ROUNDS) -> None:
    """A saved bandit decides and learns as it would have without."""
    _check_kept_bandit_goes_on(spec, d, q, lambda b: b.loads(b.dumps()), "saved")


def _check_kept_bandit_goes_on(
    spec: Any, d: int, q: int, kept: Callable[[ContextualBandit], ContextualBandit], how: str
) -> None:
    n = min(4, int(getattr(spec, "n_arms", 4)))
    bandit = _taught(spec, d, q)
    twin = kept(bandit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for t in range(20):
            features = _some_features(d, q, n, seed=t)
            mine, yours = bandit.select(features), twin.select(features)
            assert mine == yours, f"a {how} bandit must decide as it would have without"
            reward = allowed(spec, 0.5 * (t % 3))
            told = category_of(spec, reward)
            bandit.update(mine, reward, features, category=told)
            twin.update(yours, reward, features, category=told)
    changed = _different(bandit.state, twin.state)
    assert not changed, f"a {how} bandit must learn as it would have without; not so: {changed}"


def impossible_states_are_refused(spec: Any, d: int = D, q: int = Q, rounds: int = ROUNDS) -> None:
    """A saved state with a number that cannot be is refused when it is loaded."""
    content = json.loads(_taught(spec, d, q).dumps())
    content.pop("checksum")
    _spoil(content["state"])
    try:
        ContextualBandit.loads(saved_text(content))
    except SavedStateError:
        return
    raise AssertionError("a saved state that holds NaN must be refused")


def _spoil(data: Any) -> bool:
    """Put NaN in place of the first number of a saved state; False if it holds none."""
    for inside in data if isinstance(data, dict) else range(len(data)):
        if not isinstance(data[inside], dict | list):
            data[inside] = "nan"
            return True
        if _spoil(data[inside]):
            return True
    return False


_CHECKS = (
    spec_is_data,
    wrong_parameters_are_refused,
    compiled_code_decides_as_interpreted,
    deciding_learns_nothing,
    drawing_again_is_drawing_anew,
    learning_draws_nothing,
    order_of_actions_does_not_matter,
    zeros_leave_the_magnitude,
    features_may_be_tiny_or_huge,
    batch_is_its_rewards,
    pickled_bandit_goes_on,
    saved_bandit_goes_on,
    impossible_states_are_refused,
)
CONTEXTUAL_CHECKS: dict[str, Callable[..., None]] = {check.__name__: check for check in _CHECKS}
# Not for policies that hold Python objects: those are pickled, not saved.
_OF_DATA = ("spec_is_data", "saved_bandit_goes_on", "impossible_states_are_refused")
