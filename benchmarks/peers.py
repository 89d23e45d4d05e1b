"""Other libraries behind one pair of functions each, and the reason where one is missing.

Every peer plays the problem of `benchmarks.scene` with its own policy of the asked kind: "ucb" (an
index) or "ts" (sampling). None of them models zero inflation; where a policy takes only rewards of
zero and one, it is told whether the arm paid. The simulated round is played by the peer's own
simulator where it has one that learns after every round, else by a plain loop.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from benchmarks import scene

Online = tuple[Callable[[], Any], Callable[[Any, float], None]]


class Peer(NamedTuple):
    """One library: how to decide and learn with it, and how to simulate with it."""

    name: str
    distribution: str
    kinds: tuple[str, ...]
    online: Callable[[str], Online]
    simulate: Callable[[str, int], object] | None = None
    simulator: str = "plain loop"
    notes: Mapping[str, str] = MappingProxyType({})


class Missing(NamedTuple):
    """A library that takes no part, and why."""

    name: str
    reason: str


def _pymab_policy(kind: str) -> Any:
    policies = importlib.import_module("pymab.policies")
    if kind == "ucb":
        return policies.UCBPolicy(n_arms=scene.N_ARMS)
    return policies.GaussianThompsonSamplingPolicy(n_arms=scene.N_ARMS)


def _pymab_online(kind: str) -> Online:
    policy = _pymab_policy(kind)
    rng = np.random.default_rng(0)
    return (
        lambda: policy.select_action(rng=rng),
        lambda arm, reward: policy.update(action=arm, reward=reward),
    )


def _pymab_simulate(kind: str, rounds: int) -> object:
    simulation = importlib.import_module("pymab.simulation")
    environments = importlib.import_module("pymab.environments")
    # Its compiled backend knows Gaussian, Bernoulli and uniform rewards only.
    return simulation.Experiment(
        environment=environments.BanditEnvironment(means=scene.ARM_MEANS),
        policies={"policy": _pymab_policy(kind)},
        config=simulation.ExperimentConfig(horizon=rounds, n_replicates=1, seed=0, backend="rust"),
    ).run()


def _mabwiser_online(kind: str) -> Online:
    mab = importlib.import_module("mabwiser.mab")
    arms = list(range(scene.N_ARMS))
    binary = kind == "ts"
    learning = mab.LearningPolicy
    policy = mab.MAB(arms, learning.ThompsonSampling() if binary else learning.UCB1(alpha=1.0))
    policy.fit(arms, [0] * scene.N_ARMS)

    def update(arm: Any, reward: float) -> None:
        policy.partial_fit([arm], [int(reward != 0.0) if binary else reward])

    return policy.predict, update


def _river_policy(kind: str) -> Any:
    bandit = importlib.import_module("river.bandit")
    if kind == "ucb":
        return bandit.UCB(delta=1, seed=0)
    proba = importlib.import_module("river.proba")
    return bandit.ThompsonSampling(reward_obj=proba.Gaussian(), seed=0)


def _river_online(kind: str) -> Online:
    policy = _river_policy(kind)
    arms = range(scene.N_ARMS)
    return lambda: policy.pull(arms), policy.update


class _Steps:
    """The scene in the form river's evaluator wants: something with `step`."""

    class _Actions:
        n = scene.N_ARMS

        def seed(self, seed: int) -> None:
            """Nothing here is random."""

    def __init__(self, rounds: int) -> None:
        self.action_space = self._Actions()
        self._left = rounds
        self._draw = Drawing()

    def reset(self, seed: int) -> None:
        """Start again with this seed."""
        self._draw = Drawing(seed)

    def step(self, arm: int) -> tuple[None, float, bool, bool, None]:
        """Pay one reward."""
        self._left -= 1
        return None, self._draw(arm), self._left <= 0, False, None


class Drawing:
    """Draw single rewards in plain Python: the cheapest way without arrays."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = random.Random(seed)
        self._probs = scene.PROBS.tolist()
        self._means = scene.MEANS.tolist()

    def __call__(self, arm: int) -> float:
        if self._rng.random() < self._probs[arm]:
            return self._rng.gauss(self._means[arm], scene.SIGMA)
        return 0.0


def _river_simulate(kind: str, rounds: int) -> object:
    bandit = importlib.import_module("river.bandit")
    trace = bandit.evaluate([_river_policy(kind)], _Steps(rounds), n_episodes=1, seed=0)
    for _ in trace:
        pass
    return None


def _coba_online(kind: str) -> Online:
    learners = importlib.import_module("coba.learners")
    learner = learners.BanditUCBLearner()
    actions = list(range(scene.N_ARMS))
    last = [1.0]

    def select() -> Any:
        arm, last[0] = learner.predict(None, actions)[:2]
        return arm

    return select, lambda arm, reward: learner.learn(None, arm, reward, last[0])


class _Readable:
    """A list in the form of a coba environment."""

    params: ClassVar[dict[str, str]] = {}

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def read(self) -> Iterator[Any]:
        """Go through the items."""
        return iter(self._items)


def _coba_simulate(kind: str, rounds: int) -> object:
    coba = importlib.import_module("coba")
    coba.CobaContext.logger = coba.NullLogger()
    rng = np.random.default_rng(0)
    paid = rng.random((rounds, scene.N_ARMS)) < scene.PROBS
    sizes = scene.MEANS + scene.SIGMA * rng.standard_normal((rounds, scene.N_ARMS))
    rewards = np.where(paid, sizes, 0.0).tolist()
    actions = list(range(scene.N_ARMS))
    interactions = [coba.SimulatedInteraction(None, actions, row) for row in rewards]
    for _ in coba.SequentialCB().evaluate(_Readable(interactions), coba.BanditUCBLearner()):
        pass
    return None


def _vw_online(kind: str) -> Online:
    vw = importlib.import_module("vowpalwabbit")
    lines: list[str] = []
    if kind == "ucb":  # known only for actions described by features
        workspace = vw.Workspace("--cb_explore_adf --regcbopt --quiet --random_seed 1")
        lines = ["shared |", *(f"| a{k}" for k in range(scene.N_ARMS))]
    else:
        workspace = vw.Workspace(f"--cb_explore {scene.N_ARMS} --bag 10 --quiet --random_seed 1")
    rng = random.Random(0)
    arms = range(scene.N_ARMS)
    last = [1.0]

    def select() -> int:
        pmf = workspace.predict(lines if lines else "| x")
        arm = rng.choices(arms, pmf)[0]
        last[0] = pmf[arm]
        return arm

    def update(arm: Any, reward: float) -> None:
        if lines:
            told = lines.copy()
            told[arm + 1] = f"0:{-reward}:{last[0]} {lines[arm + 1]}"
            workspace.learn(told)
        else:
            workspace.learn(f"{arm + 1}:{-reward}:{last[0]} | x")

    return select, update


def _bayesianbandits_online(kind: str) -> Online:
    bb = importlib.import_module("bayesianbandits")
    arms = [bb.Arm(k, learner=bb.NormalInverseGammaRegressor()) for k in range(scene.N_ARMS)]
    policy = bb.UpperConfidenceBound() if kind == "ucb" else bb.ThompsonSampling()
    agent = bb.Agent(arms, policy, random_seed=0)

    def select() -> Any:
        return agent.pull()[0]

    def update(arm: Any, reward: float) -> None:
        agent.select_for_update(arm).update(np.array([reward]))

    return select, update


def _pybandits_online(kind: str) -> Online:
    smab = importlib.import_module("pybandits.smab")
    policy = smab.SmabBernoulli.cold_start(action_ids={str(k) for k in range(scene.N_ARMS)})

    def select() -> int:
        return int(policy.predict(n_samples=1)[0][0])

    def update(arm: Any, reward: float) -> None:
        policy.update(actions=[str(arm)], rewards=[int(reward != 0.0)])

    return select, update


def _smpybandits() -> Any:
    special: Any = importlib.import_module("scipy.special")
    if not hasattr(special, "btdtri"):  # its old name; without it the package cannot be imported
        special.btdtri = special.betaincinv
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("SMPyBandits.Policies")


def _smpybandits_online(kind: str) -> Online:
    policies = _smpybandits()
    binary = kind == "ts"
    policy = policies.Thompson(scene.N_ARMS) if binary else policies.UCB(scene.N_ARMS)
    policy.startGame()

    def update(arm: Any, reward: float) -> None:
        policy.getReward(arm, float(reward != 0.0) if binary else reward)

    return policy.choice, update


_STAND_IN = "imports only with a stand-in for scipy.special.btdtri"

PEERS = (
    Peer(
        "PyMAB",
        "pymab",
        ("ucb", "ts"),
        _pymab_online,
        _pymab_simulate,
        "pymab.Experiment, Rust, Gaussian rewards",
    ),
    Peer(
        "river",
        "river",
        ("ucb", "ts"),
        _river_online,
        _river_simulate,
        "river.bandit.evaluate",
    ),
    Peer(
        "coba",
        "coba",
        ("ucb",),
        _coba_online,
        _coba_simulate,
        "coba.SequentialCB",
        notes={"ucb": "UCB1-Tuned; has no Thompson sampling without context"},
    ),
    Peer(
        "Vowpal Wabbit",
        "vowpalwabbit",
        ("ucb", "ts"),
        _vw_online,
        notes={"ucb": "--regcbopt", "ts": "--bag 10"},
    ),
    Peer(
        "MABWiser",
        "mabwiser",
        ("ucb", "ts"),
        _mabwiser_online,
        notes={"ts": "Beta, paid or not"},
    ),
    Peer(
        "SMPyBandits",
        "SMPyBandits",
        ("ucb", "ts"),
        _smpybandits_online,
        notes={"ucb": _STAND_IN, "ts": f"Beta, paid or not; {_STAND_IN}"},
    ),
    Peer(
        "PyBandits",
        "pybandits",
        ("ts",),
        _pybandits_online,
        notes={"ts": "Beta, paid or not"},
    ),
    Peer(
        "bayesianbandits",
        "bayesianbandits",
        ("ucb", "ts"),
        _bayesianbandits_online,
        notes={"ucb": "normal-inverse-gamma", "ts": "normal-inverse-gamma"},
    ),
)

# Not measured, and what an attempt to install them answers on Python 3.11.
ABSENT = (
    Missing("obp", "0.5.7 declares Python < 3.11"),
    Missing("contextualbandits", "contextual only: see contextual_peers.py"),
)


def available() -> Iterator[Peer | Missing]:
    """Return every peer, or why it takes no part."""
    for peer in PEERS:
        try:
            version = metadata.version(peer.distribution)
            peer.online(peer.kinds[0])
        except Exception as error:  # whatever it is, it is the reason
            yield Missing(peer.name, f"{type(error).__name__}: {error}")
        else:
            yield peer._replace(name=f"{peer.name} {version}")
    yield from ABSENT
