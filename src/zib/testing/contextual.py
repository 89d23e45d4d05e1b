"""What every contextual policy must keep to."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.contextual import entry, policy
from zib.contextual.policy import COVARIANCE, ETA, ZETA
from zib.contextual_bandit import ContextualBandit
from zib.core import kernel
from zib.testing.specs import allowed, check_spec_is_data

Matrix = NDArray[np.float64]
Reward = Callable[[np.random.Generator, Matrix, int], float]


def check_contextual_policy(spec: Any, d: int = 4, q: int = 3, *, rounds: int = 150) -> None:
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
    compiles = not kernel.is_interpreted(spec)
    if compiles:
        check_spec_is_data(spec)
    for scene in _scenes(d, q, rounds):
        _check_scene(spec, scene, compiles)
    trained = _play(spec, _dense(d, q, rounds), compiled=True)
    _check_select_learns_nothing(spec, trained)
    _check_update_draws_nothing(spec, d, q)
    _check_order_of_actions(spec, trained)
    _check_zeros_leave_the_magnitude(spec, trained)
    for size in (1e-8, 1e8):
        _check_extreme_features(spec, d, q, size)
    _check_batch_is_its_rewards(spec, d, q)
    _check_kept_bandit_goes_on(spec, d, q, lambda b: pickle.loads(pickle.dumps(b)), "pickled")
    if compiles:
        _check_kept_bandit_goes_on(spec, d, q, lambda b: b.loads(b.dumps()), "saved")


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
        select, update = entry.select_arms.for_spec(spec), entry.update.for_spec(spec)
    else:
        pin = entry.loose_pin(spec, state, rng, space)
        select, update = entry.select_arms.interpreted, entry.update.interpreted
    rows, scores = [], []
    for t in range(scene.rounds):
        world = np.random.default_rng((scene.seed, t))
        z, w = _features(world, scene)
        ids = _ids(spec, len(z))
        row = int(select(pin, ids, z, w))
        rows.append(row)
        scores.append(space.out[: len(z)].copy())
        reward = allowed(spec, scene.reward(world, z, row))
        update(pin, int(ids[row]), z, w, row, reward)
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


# ---------------------------------------------------------------------------------------- promises


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


def _shape_of(trained: _Played) -> tuple[int, int]:
    return trained.space.z_row.size, trained.space.w_row.size


def _check_select_learns_nothing(spec: Any, trained: _Played) -> None:
    before = copy.deepcopy(trained.state)
    z, w = _some_features(*_shape_of(trained), 5)
    rng = np.random.default_rng(1)
    space = entry.buffers(5, z.shape[1], w.shape[1])
    pin = entry.loose_pin(spec, trained.state, rng, space)
    for _ in range(20):
        entry.select_arms.interpreted(pin, _ids(spec, 5), z, w)
    entry.moments.interpreted(pin, _ids(spec, 5), np.zeros((5, 5)))
    changed = _different(before, trained.state)
    assert not changed, f"`scores` and `moments` must not change the state; changed: {changed}"


def _history(spec: Any, d: int, q: int, n: int) -> tuple[Any, Matrix, Matrix, Matrix]:
    rng = np.random.default_rng(11)
    z, w = rng.normal(size=(n, d)), rng.normal(size=(n, q))
    rewards = np.where(rng.random(n) < 0.4, rng.normal(1.0, 1.0, n), 0.0)
    return _ids(spec, n), z, w, np.array([allowed(spec, r) for r in rewards])


def _check_update_draws_nothing(spec: Any, d: int, q: int) -> None:
    # `update` has no Generator, so it could only draw from the global one
    ids, z, w, rewards = _history(spec, d, q, 40)
    before = copy.deepcopy(np.random.get_state(legacy=False))  # noqa: NPY002
    states = [policy.init(spec, d, q) for _ in range(2)]
    for state in states:
        for i in range(ids.size):
            policy.update(spec, state, int(ids[i]), z[i], w[i], float(rewards[i]))
    after = np.random.get_state(legacy=False)  # noqa: NPY002
    assert str(before) == str(after), "`update` must not draw random numbers"
    changed = _different(*states)
    assert not changed, f"the same rewards must teach the same; different: {changed}"


def _check_order_of_actions(spec: Any, trained: _Played) -> None:
    if policy.draws_randomly(spec):
        return
    d, q = _shape_of(trained)
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


def _check_zeros_leave_the_magnitude(spec: Any, trained: _Played) -> None:
    d, q = _shape_of(trained)
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


def _bandit(spec: Any, d: int, q: int) -> ContextualBandit:
    return ContextualBandit(spec, n_features=(d, q), seed=5)


def _check_batch_is_its_rewards(spec: Any, d: int, q: int) -> None:
    ids, z, w, rewards = _history(spec, d, q, 40)
    single, batch = _bandit(spec, d, q), _bandit(spec, d, q)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for i in range(ids.size):
            single.update(int(ids[i]), float(rewards[i]), (z[i], w[i]))
        batch.update_many(ids.tolist(), rewards, (z, w))
    changed = _different(single.state, batch.state)
    assert not changed, f"a batch must teach what its rewards teach one by one; not so: {changed}"


def _check_kept_bandit_goes_on(
    spec: Any, d: int, q: int, kept: Callable[[ContextualBandit], ContextualBandit], how: str
) -> None:
    n = min(4, int(getattr(spec, "n_arms", 4)))
    ids, z, w, rewards = _history(spec, d, q, 60)
    bandit = _bandit(spec, d, q)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        bandit.update_many(ids.tolist(), rewards, (z, w))
        twin = kept(bandit)
        for t in range(20):
            features = _some_features(d, q, n, seed=t)
            mine, yours = bandit.select(features), twin.select(features)
            assert mine == yours, f"a {how} bandit must decide as it would have without"
            reward = allowed(spec, 0.5 * (t % 3))
            bandit.update(mine, reward, features)
            twin.update(yours, reward, features)
    changed = _different(bandit.state, twin.state)
    assert not changed, f"a {how} bandit must learn as it would have without; not so: {changed}"
