"""Decisions by features: 100 actions, 10 features for each of the two parts, one thread."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
from numba.extending import register_jitable

import zib
from benchmarks._measure import Part, Row, Work, interleaved
from benchmarks.bare import lean
from benchmarks.contextual_peers import (
    ENV_ID,
    N_ACTIONS,
    N_FEATURES,
    Online,
    Peer,
    Scene,
    available,
    player,
    pymab_simulate,
    scene,
)
from benchmarks.peers import Missing
from zib.env.contextual import sine

HORIZON = 2_000_000
_PAPER: dict[str, Any] = {"horizon": HORIZON, "sigma": 1.0, "link": "probit"}
OURS: dict[str, tuple[str, Any]] = {
    "zib JointUCB": ("ucb", zib.contextual.JointUCB(link="probit")),
    "zib LaplaceTS": ("ts", zib.contextual.LaplaceTS(link="probit")),
    "zib ZIUCB": ("ucb", zib.contextual.ZIUCB(**_PAPER)),
    "zib ZITS": ("ts", zib.contextual.ZITS(**_PAPER)),
}
# One linear model of the reward, as the peers have: for a comparison of like with like.
ALIKE: dict[str, tuple[str, Any]] = {
    "zib Naive UCB": ("ucb", zib.contextual.Naive(horizon=HORIZON, sigma=1.0, kind="ucb")),
    "zib Naive TS": ("ts", zib.contextual.Naive(horizon=HORIZON, sigma=1.0, kind="ts")),
}
ONLINE_US = 40.0
SIMULATED_US = {"ucb": 60.0, "ts": 50.0}
GROWTH = 1.2
POOL = 128  # ready rounds: about a megabyte of features for each part
STUDY = 20_000  # rounds of the paper's study
EARLY, LATE = 10_000, 1_000_000
WINDOW = 8192  # rounds timed there; the history is refitted every 512 to 1024 rounds


# ----------------------------------------------------------------------------- the bare yardsticks
#
# What a careful person would write by hand for the arithmetic of `JointUCB` and `LaplaceTS` and
# nothing else: no checks, no refits (the estimates are one-pass), no repair of rounding errors, one
# link. In NumPy for decisions one at a time, compiled for the simulated round. Only the sine is the
# library's own, which handles several numbers at once.

_ROOT_HALF = math.sqrt(0.5)
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)
_inline = register_jitable(_nrt=False, forceinline=True)


class NumPyPair:
    """Both models in NumPy, one decision at a time."""

    def __init__(self, kind: str, rounds: Scene) -> None:
        from scipy.special import ndtr

        self._ndtr: Any = ndtr
        self._kind = kind
        self._z, self._w = list(rounds.z), list(rounds.w)
        self._rng = np.random.default_rng(0)
        self._t = 0
        self._theta, self._beta = np.zeros(N_FEATURES), np.zeros(N_FEATURES)
        self._u, self._v = np.eye(N_FEATURES), np.eye(N_FEATURES)  # inverses of the curvatures

    def select(self, i: int) -> int:
        """Return the action of round i."""
        z, w = self._z[i], self._w[i]
        if self._kind == "ts":
            draw = self._rng.standard_normal
            theta = self._theta + np.linalg.cholesky(self._u) @ draw(N_FEATURES)
            beta = self._beta + np.linalg.cholesky(self._v) @ draw(N_FEATURES)
            return int((self._ndtr(w @ theta) * (z @ beta)).argmax())
        eta, mu = w @ self._theta, z @ self._beta
        prob = self._ndtr(eta)
        slope = _DENSITY * np.exp(-0.5 * eta * eta)
        var_p = slope * slope * np.vecdot(w @ self._u, w)
        var_mu = np.vecdot(z @ self._v, z)
        width = math.sqrt(math.log1p(self._t))
        variance = prob * prob * var_mu + mu * mu * var_p + var_mu * var_p
        return int((prob * mu + width * np.sqrt(variance)).argmax())

    def update(self, i: int, action: int, reward: float) -> None:
        """Learn the reward of an action of round i, by one Newton step per part."""
        self._t += 1
        w = self._w[i][action]
        eta = float(w @ self._theta)
        prob = min(max(0.5 * math.erfc(-eta * _ROOT_HALF), 1e-12), 1.0 - 1e-12)
        slope = _DENSITY * math.exp(-0.5 * eta * eta)
        weight = slope * slope / (prob * (1.0 - prob))
        solved = self._u @ w
        shrink = 1.0 + weight * float(w @ solved)
        error = ((1.0 if reward != 0.0 else 0.0) - prob) * slope / (prob * (1.0 - prob))
        self._u -= np.multiply.outer(solved, solved * (weight / shrink))
        self._theta += solved * (error / shrink)
        if reward != 0.0:
            z = self._z[i][action]
            solved = self._v @ z
            shrink = 1.0 + float(z @ solved)
            error = reward - float(z @ self._beta)
            self._v -= np.multiply.outer(solved, solved / shrink)
            self._beta += solved * (error / shrink)


@_inline
def _predict(coef: Any, x: Any, out: Any) -> None:
    for k in range(out.size):
        out[k] = 0.0
    for i in range(coef.size):
        for k in range(out.size):
            out[k] += coef[i] * x[i, k]


@_inline
def _widths(inverse: Any, x: Any, work: Any, out: Any) -> None:
    for k in range(out.size):
        out[k] = 0.0
    for i in range(x.shape[0]):
        for k in range(out.size):
            work[k] = 0.5 * inverse[i, i] * x[i, k]
        for j in range(i):
            for k in range(out.size):
                work[k] += inverse[i, j] * x[j, k]
        for k in range(out.size):
            out[k] += 2.0 * x[i, k] * work[k]


@_inline
def _draw(coef: Any, factor: Any, rng: Any, out: Any) -> None:
    """Write a draw from N(coef, (R'R)⁻¹)."""
    for i in range(coef.size):
        out[i] = rng.standard_normal()
    for i in range(coef.size - 1, -1, -1):
        for j in range(i + 1, coef.size):
            out[i] -= factor[i, j] * out[j]
        out[i] /= factor[i, i]
    for i in range(coef.size):
        out[i] += coef[i]


@_inline
def _learn(
    coef: Any, inverse: Any, factor: Any, x: Any, error: float, weight: float, work: Any
) -> None:
    """Move by one Newton step; bring the inverse, or the factor where there is one, up to date."""
    solved, rest = work[0], work[1]
    if factor.size > 0:
        root = math.sqrt(weight)
        for i in range(x.size):
            rest[i] = root * x[i]
        for k in range(x.size):
            old = factor[k, k]
            new = math.sqrt(old * old + rest[k] * rest[k])
            c, s = new / old, rest[k] / old
            factor[k, k] = new
            for i in range(k + 1, x.size):
                factor[k, i] = (factor[k, i] + s * rest[i]) / c
                rest[i] = c * rest[i] - s * factor[k, i]
    along = 0.0
    for i in range(x.size):
        solved[i] = 0.0
    for j in range(x.size):
        for i in range(x.size):
            solved[i] += inverse[j, i] * x[j]
    for i in range(x.size):
        along += x[i] * solved[i]
    shrink = 1.0 + weight * along
    for i in range(x.size):
        coef[i] += solved[i] * error / shrink
        for j in range(x.size):
            inverse[i, j] -= weight / shrink * solved[i] * solved[j]


@lean
def _bare_round(  # type: ignore[no-untyped-def]
    rounds, centres, jitter, sigma, truth, models, sampling, rng, z, w, rows, x, work
):
    """Draw features and rewards, decide, learn and count the regret."""
    true_beta, true_theta = truth
    theta, u, u_factor, beta, v, v_factor = models
    eta, mu, true_eta, true_mu, var_p, var_mu, scratch = rows
    d, n = centres.shape
    regret = 0.0
    for t in range(rounds):
        for k in range(n):  # the environment
            for i in range(d):
                z[i, k] = centres[i, k] + jitter * rng.standard_normal()
        for i in range(d):
            for k in range(n):
                w[i, k] = sine(z[i, k])
        _predict(true_theta, w, true_eta)
        _predict(true_beta, z, true_mu)
        best = -np.inf
        for k in range(n):
            true_eta[k] = 0.5 * math.erfc(-true_eta[k] * _ROOT_HALF)
            best = max(best, true_eta[k] * true_mu[k])
        if sampling:  # the decision
            _draw(theta, u_factor, rng, work[0])
            _draw(beta, v_factor, rng, work[1])
            _predict(work[0], w, eta)
            _predict(work[1], z, mu)
            for k in range(n):
                mu[k] *= 0.5 * math.erfc(-eta[k] * _ROOT_HALF)
        else:
            _predict(theta, w, eta)
            _predict(beta, z, mu)
            _widths(u, w, scratch, var_p)
            _widths(v, z, scratch, var_mu)
            width = math.sqrt(math.log1p(t))
            for k in range(n):
                prob = 0.5 * math.erfc(-eta[k] * _ROOT_HALF)
                slope = _DENSITY * math.exp(-0.5 * eta[k] * eta[k])
                spread = slope * slope * var_p[k]
                variance = prob * prob * var_mu[k] + mu[k] * mu[k] * spread + spread * var_mu[k]
                mu[k] = prob * mu[k] + width * math.sqrt(variance)
        action = 0
        for k in range(1, n):
            if mu[k] > mu[action]:
                action = k
        regret += best - true_eta[action] * true_mu[action]
        paid = rng.random() < true_eta[action]
        noise = sigma * rng.standard_normal()

        predicted = 0.0  # what is learned
        for i in range(d):
            x[i] = w[i, action]
            predicted += theta[i] * x[i]
        prob = min(max(0.5 * math.erfc(-predicted * _ROOT_HALF), 1e-12), 1.0 - 1e-12)
        slope = _DENSITY * math.exp(-0.5 * predicted * predicted)
        per_error = slope / (prob * (1.0 - prob))
        error = (1.0 if paid else 0.0) - prob
        _learn(theta, u, u_factor, x, error * per_error, slope * per_error, work)
        if paid:
            predicted = 0.0
            for i in range(d):
                x[i] = z[i, action]
                predicted += beta[i] * x[i]
            _learn(beta, v, v_factor, x, true_mu[action] + noise - predicted, 1.0, work)
    return regret


def bare_simulate(kind: str, rounds: int) -> float:
    """Play the paper's setting with the compiled loop; return the regret."""
    rng = np.random.default_rng(0)
    env: Any = zib.env.make(ENV_ID)
    instance = env.instance(rng)
    d, n = N_FEATURES, N_ACTIONS
    size = d if kind == "ts" else 0
    models = tuple(a for _ in range(2) for a in (np.zeros(d), np.eye(d), np.eye(size)))
    truth = (np.array(instance.beta), np.array(instance.theta))
    rows = tuple(np.zeros(n) for _ in range(7))
    z, w = np.zeros((d, n)), np.zeros((d, n))
    centres = np.ascontiguousarray(np.array(instance.centres).T)
    fixed = (centres, env.jitter, env.sigma, truth, models, kind == "ts", rng)
    return float(_bare_round(rounds, *fixed, z, w, rows, np.zeros(d), np.zeros((2, d))))


# --------------------------------------------------------------------------------------------- us


def online(bandit: Any, rounds: Scene, *, paired: bool = True) -> Online:
    """Return how a `ContextualBandit` plays ready rounds, with features for both parts or one."""
    z, w = list(rounds.z), list(rounds.w)
    features: list[Any] = list(zip(z, w)) if paired else z
    select, update = bandit.select, bandit.update
    return (
        lambda i: select(features[i]),
        lambda i, action, reward: update(action, reward, features[i]),
    )


def _fresh(spec: Any) -> Any:
    return zib.ContextualBandit(spec, n_features=(N_FEATURES, N_FEATURES), seed=0)


def _trained(spec: Any, rounds: Scene, rewards: int) -> Any:
    """Return a bandit that has learned that many rewards of actions taken at random."""
    bandit = _fresh(spec)
    rng = np.random.default_rng(0)
    table = np.array(rounds.reward)
    for first in range(0, rewards, 100_000):
        n = min(100_000, rewards - first)
        i, action = rng.integers(len(table), size=n), rng.integers(N_ACTIONS, size=n)
        both = (rounds.z[i, action], rounds.w[i, action])
        bandit.update_many(action.tolist(), table[i, action], both)
    return bandit


def _later(bandit: Any, rounds: Scene) -> Work:
    """Return a function that plays on from the same point each time it is called."""
    return lambda n: player(*online(copy.deepcopy(bandit), rounds), rounds)(n)


def _simulate(spec: Any) -> Work:
    env: Any = zib.env.make(ENV_ID)
    return lambda n: zib.simulate(
        [spec], env, horizon=n, replications=1, backend="serial", progress=False
    )


# ---------------------------------------------------------------------------------------- measured


def _online_rows(quick: bool) -> list[Row]:
    found = list(available())
    scenes = {form: scene(form, POOL) for form in ("per action", "one context")}
    ready = scenes["per action"]
    works: dict[str, Work] = {}
    for name, (_, spec) in (OURS | ALIKE).items():
        works[name] = player(*online(_fresh(spec), ready, paired=name in OURS), ready)
    bare = {f"bare NumPy, {kind} kind": NumPyPair(kind, ready) for kind in ("ucb", "ts")}
    works |= {name: player(pair.select, pair.update, ready) for name, pair in bare.items()}
    peers = {
        f"{peer.name}, {peer.kind}, {peer.form}: {peer.note}": peer
        for peer in found
        if isinstance(peer, Peer)
    }
    for name, peer in peers.items():
        rounds = scenes[peer.form]
        works[name] = player(*peer.online(peer.kind, rounds), rounds)
    best = interleaved(works, seconds=0.05 if quick else 0.2, repeats=3 if quick else 9)

    rows: list[Row] = []
    what = "decide + update"
    for name, value in best.items():
        target = ONLINE_US if name in OURS else None
        note = ""
        if name in ALIKE:
            note = "one model of the reward, as the peers have"
        elif name in peers:
            note = f"{value / best['zib JointUCB']:,.1f} × zib JointUCB"
        rows.append(Row("contextual", what, name, 1e6 * value, "µs", target, note))
    for name, (kind, _) in OURS.items():
        for which, kinds in (("any kind", {"ucb", "ts", "greedy"}), ("same kind", {kind})):
            rivals = [rival for rival, peer in peers.items() if peer.kind in kinds]
            if rivals:
                fastest = min(rivals, key=best.__getitem__)
                ratio = best[fastest] / best[name]
                whose = f"{what}, fastest peer of {which} / ours"
                rows.append(Row("contextual", whose, name, ratio, "×", 1.0, fastest, at_least=True))
    return rows


def _simulated_rows(quick: bool) -> list[Row]:
    works: dict[str, Work] = {name: _simulate(spec) for name, (_, spec) in OURS.items()}
    works["ucb"] = lambda n: bare_simulate("ucb", n)
    works["ts"] = lambda n: bare_simulate("ts", n)
    rounds = dict.fromkeys(works, 5000 if quick else STUDY)
    pymab = next(
        (p.name for p in available() if isinstance(p, Peer) and p.distribution == "pymab"), ""
    )
    if pymab:
        works["PyMAB ucb"] = lambda n: pymab_simulate("ucb", n)
        works["PyMAB ts"] = lambda n: pymab_simulate("ts", n)
        rounds |= {"PyMAB ucb": 1000, "PyMAB ts": 1000}
    best = interleaved(works, repeats=3 if quick else 9, rounds=rounds)

    rows: list[Row] = []
    what = "simulated round"
    for name, (kind, _) in OURS.items():
        ours = best[name]
        rows.append(Row("contextual", what, name, 1e6 * ours, "µs", SIMULATED_US[kind]))
        rows.append(Row("contextual", f"{what}, ours / bare loop", name, ours / best[kind], "×"))
        if f"PyMAB {kind}" in best:
            ratio = best[f"PyMAB {kind}"] / ours
            rows.append(Row("contextual", f"{what}, PyMAB / ours", name, ratio, "×"))
    for kind in ("ucb", "ts"):
        note = f"{'JointUCB' if kind == 'ucb' else 'LaplaceTS'} without refits"
        who = f"bare loop, {kind} kind"
        rows.append(Row("contextual", what, who, 1e6 * best[kind], "µs", note=note))
        if f"PyMAB {kind}" in best:
            note = "its own simulator, Gaussian features and rewards"
            value = 1e6 * best[f"PyMAB {kind}"]
            rows.append(Row("contextual", what, f"{pymab}, {kind} kind", value, "µs", note=note))
    return rows


def _growth_rows(quick: bool) -> list[Row]:
    late = LATE // 10 if quick else LATE
    ready = scene("per action", POOL)
    works: dict[str, Work] = {}
    for name, (_, spec) in OURS.items():
        for t in (EARLY, late):
            works[f"{name} {t}"] = _later(_trained(spec, ready, t), ready)
    rounds = dict.fromkeys(works, WINDOW)
    best = interleaved(works, repeats=3 if quick else 9, rounds=rounds)
    rows: list[Row] = []
    for name in OURS:
        early, later = best[f"{name} {EARLY}"], best[f"{name} {late}"]
        note = f"{1e6 * later:.3g} µs / {1e6 * early:.3g} µs, refits included"
        what = f"decide + update at t = {late:.0e} / at t = {EARLY:.0e}"
        rows.append(Row("contextual", what, name, later / early, "×", GROWTH, note))
    return rows


def _absent(quick: bool) -> list[Row]:
    return [
        Row("contextual", "not measured", peer.name, None, "", note=peer.reason)
        for peer in available()
        if isinstance(peer, Missing)
    ]


PARTS: dict[str, Part] = {
    "decide and update": _online_rows,
    "simulated round": _simulated_rows,
    "cost later on": _growth_rows,
    "peers left out": _absent,
}
