"""Other libraries' contextual policies behind one pair of functions each.

All play 100 actions and 10 features. Peers that take features per action play the setting of the
paper; those that take one context for all arms, and keep parameters of each arm apart, play a
problem of that form. Each gets its input ready in the form it wants, and is called in the fastest
way we found in its documentation and sources. None of them models zero inflation: they carry one
model where zib carries two.

``python -m benchmarks.contextual_peers`` shows that what is timed does learn.
"""

from __future__ import annotations

import importlib
import random
import warnings
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np

import zib
from benchmarks.peers import Missing

N_ACTIONS = 100
N_FEATURES = 10
ENV_ID = "paper-contextual-gaussian-s7-probit-v1"

Select = Callable[[int], Any]
Update = Callable[[int, Any, float], None]
Online = tuple[Select, Update]


class Scene(NamedTuple):
    """Ready rounds: features (n, K, d) of both parts, rewards by round and action, their means."""

    z: Any
    w: Any
    reward: list[list[float]]
    mean: Any

    def contexts(self) -> Any:
        """Return the one context of each round, (n, 1, d), where all actions share it."""
        return np.ascontiguousarray(self.z[:, :1])


def scene(form: str, rounds: int, seed: int = 0) -> Scene:
    """Draw rounds with features "per action" or with "one context"."""
    env: Any
    if form == "per action":
        env = zib.env.make(ENV_ID)
    else:
        env = zib.env.DisjointContextual(n_arms=N_ACTIONS, dimension=N_FEATURES)
    rng = np.random.default_rng(seed)
    block = env.instance(rng).block(rng, rounds)
    z, w = (np.ascontiguousarray(part.swapaxes(1, 2)) for part in (block.z, block.w))
    return Scene(z, w, block.reward.tolist(), block.mean)


class Peer(NamedTuple):
    """One way to play: whose, of which kind, in which form, and how."""

    name: str
    distribution: str
    kind: str
    form: str
    online: Callable[[str, Scene], Online]
    note: str


def _pymab(kind: str, rounds: Scene) -> Online:
    policies = importlib.import_module("pymab.policies")
    make = policies.LinUCBPolicy if kind == "ucb" else policies.LinearThompsonSamplingPolicy
    policy = make(n_arms=N_ACTIONS, n_features=N_FEATURES)
    rng = np.random.default_rng(0)
    z = list(rounds.z)

    def update(i: int, arm: Any, reward: float) -> None:
        policy.update(action=arm, reward=reward, context=z[i])

    return lambda i: policy.select_action(rng=rng, context=z[i]), update


def pymab_simulate(kind: str, rounds: int) -> object:
    """Play with PyMAB's compiled simulator; it has Gaussian features and rewards only."""
    policies = importlib.import_module("pymab.policies")
    environments = importlib.import_module("pymab.environments")
    simulation = importlib.import_module("pymab.simulation")
    make = policies.LinUCBPolicy if kind == "ucb" else policies.LinearThompsonSamplingPolicy
    theta = np.random.default_rng(0).random((N_ACTIONS, N_FEATURES))
    features = environments.GaussianContextProvider(N_ACTIONS, N_FEATURES)
    return simulation.Experiment(
        environment=environments.LinearContextualEnvironment(theta, features),
        policies={"policy": make(n_arms=N_ACTIONS, n_features=N_FEATURES)},
        config=simulation.ExperimentConfig(horizon=rounds, n_replicates=1, seed=0, backend="rust"),
    ).run()


_VW = "--quiet --noconstant --random_seed 1"
_VW_KINDS = {
    "greedy": "--epsilon 0.05",
    "ucb": "--regcbopt --cb_min_cost -4 --cb_max_cost 2",
    "ts": "--bag 5",
}


def _vw_text(features: Any) -> str:
    return "| " + " ".join(f"{j}:{x:.6g}" for j, x in enumerate(features))


def _vw_per_action(kind: str, rounds: Scene) -> Online:
    vw = importlib.import_module("vowpalwabbit")
    workspace = vw.Workspace(f"--cb_explore_adf {_VW_KINDS[kind]} {_VW}")
    texts = ["\n".join(map(_vw_text, z)) for z in rounds.z]
    draw = random.Random(0).choices
    actions = range(N_ACTIONS)
    parsed: list[Any] = [None, None]  # kept from select to update: parsing is most of the work

    def select(i: int) -> int:
        examples = workspace.parse(texts[i])
        probabilities = workspace.predict(examples)
        action = draw(actions, probabilities)[0]
        parsed[:] = examples, probabilities[action]
        return action

    def update(i: int, action: Any, reward: float) -> None:
        examples, probability = parsed
        examples[action].set_label_string(f"0:{-reward}:{probability}")
        workspace.learn(examples)
        workspace.finish_example(examples)

    return select, update


def _vw_one_context(kind: str, rounds: Scene) -> Online:
    vw = importlib.import_module("vowpalwabbit")
    workspace = vw.Workspace(f"--cb_explore {N_ACTIONS} {_VW_KINDS[kind]} {_VW}")
    texts = [_vw_text(x[0]) for x in rounds.contexts()]
    draw = random.Random(0).choices
    actions = range(N_ACTIONS)
    parsed: list[Any] = [None, None]

    def select(i: int) -> int:
        example = workspace.parse(texts[i])
        probabilities = workspace.predict(example)
        action = draw(actions, probabilities)[0]
        parsed[:] = example, probabilities[action]
        return action

    def update(i: int, action: Any, reward: float) -> None:
        example, probability = parsed
        example.unsetup_example()  # or it stays marked as one to predict, and learn does nothing
        example.set_label_string(f"{action + 1}:{-reward}:{probability}")
        example.setup_example()
        workspace.learn(example)
        workspace.finish_example(example)

    return select, update


def _bayesianbandits(kind: str, rounds: Scene) -> Online:
    bb = importlib.import_module("bayesianbandits")

    class Rows(bb.ArmFeaturizer):  # type: ignore[misc, name-defined]
        """Features are there already: take the rows of the actions asked for."""

        def transform(self, X: Any, *, action_tokens: Any) -> Any:
            return X[0][action_tokens]

    agent = bb.LipschitzContextualAgent(
        [bb.Arm(k, learner=None) for k in range(N_ACTIONS)],
        bb.UpperConfidenceBound() if kind == "ucb" else bb.ThompsonSampling(),
        Rows(),
        bb.NormalRegressor(alpha=1.0, beta=1.0),
        random_seed=0,
    )
    z = [features[None] for features in rounds.z]

    def update(i: int, arm: Any, reward: float) -> None:
        agent.update(z[i], np.array([reward]))

    return lambda i: agent.pull(z[i])[0], update


def _coba(kind: str, rounds: Scene) -> Online:
    learners = importlib.import_module("coba.learners")
    make = learners.LinUCBLearner if kind == "ucb" else learners.LinTSLearner
    learner = make(features=["a"])
    actions = [[tuple(row) for row in z.tolist()] for z in rounds.z]
    last: list[Any] = [None, 1.0]

    def select(i: int) -> int:
        last[:] = learner.predict(None, actions[i])[:2]
        return actions[i].index(last[0])

    return select, lambda i, arm, reward: learner.learn(None, last[0], reward, last[1])


def _river(kind: str, rounds: Scene) -> Online:
    bandit = importlib.import_module("river.bandit")
    policy = bandit.LinUCBDisjoint(seed=0)
    contexts = [dict(enumerate(x[0].tolist())) for x in rounds.contexts()]
    arms = range(N_ACTIONS)
    return (
        lambda i: policy.pull(arms, context=contexts[i]),
        lambda i, arm, reward: policy.update(arm, contexts[i], reward),
    )


def _mabwiser(kind: str, rounds: Scene) -> Online:
    mab = importlib.import_module("mabwiser.mab")
    learning = mab.LearningPolicy
    arms = list(range(N_ACTIONS))
    policy = mab.MAB(arms, learning.LinUCB(alpha=1.0) if kind == "ucb" else learning.LinTS())
    contexts = list(rounds.contexts())
    policy.fit(np.arange(N_ACTIONS), np.zeros(N_ACTIONS), np.zeros((N_ACTIONS, N_FEATURES)))

    def update(i: int, arm: Any, reward: float) -> None:
        policy.partial_fit(np.array([arm]), np.array([reward]), contexts[i])

    return lambda i: policy.predict(contexts[i]), update


def _contextualbandits(kind: str, rounds: Scene) -> Online:
    online = importlib.import_module("contextualbandits.online")
    common = {"fit_intercept": False, "method": "sm", "random_state": 1, "njobs": 1}
    if kind == "ucb":
        policy = online.LinUCB(N_ACTIONS, **common)
    else:  # its default, drawing coefficients, plays no better than guessing here
        policy = online.LinTS(N_ACTIONS, sample_from="ci", v_sq=0.1, **common)
    contexts = list(rounds.contexts())
    paid = (np.zeros(1), np.ones(1))
    policy.fit(np.zeros((N_ACTIONS, N_FEATURES)), np.arange(N_ACTIONS), np.zeros(N_ACTIONS))

    def update(i: int, arm: Any, reward: float) -> None:
        policy.partial_fit(contexts[i], np.array([arm]), paid[reward != 0.0])

    return lambda i: int(policy.predict(contexts[i])[0]), update


_PER, _ONE = "per action", "one context"
_VW_NAME, _VW_DIST = "Vowpal Wabbit", "vowpalwabbit"
_CB, _BB, _MW = "contextualbandits", "bayesianbandits", "mabwiser"
_OWN = "own parameters per arm"

PEERS = (
    Peer("PyMAB", "pymab", "ucb", _PER, _pymab, f"LinUCB, {_OWN}"),
    Peer("PyMAB", "pymab", "ts", _PER, _pymab, f"LinTS, {_OWN}"),
    Peer(_VW_NAME, _VW_DIST, "greedy", _ONE, _vw_one_context, "--cb_explore --epsilon"),
    Peer(_VW_NAME, _VW_DIST, "ts", _ONE, _vw_one_context, "--cb_explore --bag 5"),
    Peer(_VW_NAME, _VW_DIST, "greedy", _PER, _vw_per_action, "--cb_explore_adf --epsilon"),
    Peer(_VW_NAME, _VW_DIST, "ucb", _PER, _vw_per_action, "--cb_explore_adf --regcbopt"),
    Peer(_VW_NAME, _VW_DIST, "ts", _PER, _vw_per_action, "--cb_explore_adf --bag 5"),
    Peer(_BB, _BB, "ucb", _PER, _bayesianbandits, "1000 draws; a second thread is not counted"),
    Peer(_BB, _BB, "ts", _PER, _bayesianbandits, "NormalRegressor"),
    Peer("coba", "coba", "ucb", _PER, _coba, "LinUCB"),
    Peer("coba", "coba", "ts", _PER, _coba, "LinTS"),
    Peer("river", "river", "ucb", _ONE, _river, f"LinUCB, {_OWN}"),
    Peer("MABWiser", _MW, "ucb", _ONE, _mabwiser, f"LinUCB, {_OWN}"),
    Peer("MABWiser", _MW, "ts", _ONE, _mabwiser, f"LinTS, {_OWN}"),
    Peer(_CB, _CB, "ucb", _ONE, _contextualbandits, f"LinUCB, {_OWN}; told paid or not"),
    Peer(_CB, _CB, "ts", _ONE, _contextualbandits, f"LinTS by interval, {_OWN}; told paid or not"),
)

# What pip answers on Python 3.11, and what is said where a peer is not there.
ABSENT = (Missing("obp", "0.5.7 declares Python < 3.11"),)
_WHY_NOT = {_CB: "has no wheel; pip builds it from source where there is a C++ compiler"}


def available() -> Iterator[Peer | Missing]:
    """Return every peer, its version in its name, or why it takes no part."""
    few = {form: scene(form, 1) for form in (_PER, _ONE)}
    missing: dict[str, Missing] = {}
    for peer in PEERS:
        if peer.name in missing:
            continue
        try:
            version = metadata.version(peer.distribution)
            peer.online(peer.kind, few[peer.form])
        except metadata.PackageNotFoundError:
            reason = _WHY_NOT.get(peer.distribution, "is not installed")
            missing[peer.name] = Missing(peer.name, reason)
        except Exception as error:  # whatever it is, it is the reason
            missing[peer.name] = Missing(peer.name, f"{type(error).__name__}: {error}")
        else:
            yield peer._replace(name=f"{peer.name} {version}")
    yield from (*missing.values(), *ABSENT)


def player(select: Select, update: Update, rounds: Scene) -> Callable[[int], None]:
    """Return a function that plays `n` rounds, walking around the ready ones."""
    table = rounds.reward
    size = len(table)

    def work(n: int) -> None:
        for t in range(n):
            i = t % size
            action = select(i)
            update(i, action, table[i][action])

    return work


def learned(select: Select, update: Update, rounds: Scene) -> float:
    """Play all rounds once; 0 is guessing and 1 is knowing the best action, in the last third."""
    size = len(rounds.reward)
    first = 2 * size // 3
    got = 0.0
    for i in range(size):
        action = select(i)
        update(i, action, rounds.reward[i][action])
        got += rounds.mean[i, action] if i >= first else 0.0
    late = rounds.mean[first:]
    guess, best = late.mean(), late.max(axis=1).mean()
    return float((got / len(late) - guess) / (best - guess))


def main(rounds: int = 3000) -> None:
    """Show how much of what can be learned each peer has learned."""
    warnings.simplefilter("ignore")
    scenes = {form: scene(form, rounds) for form in (_PER, _ONE)}
    for peer in available():
        if isinstance(peer, Missing):
            print(f"{peer.name}: {peer.reason}")
        else:
            share = learned(*peer.online(peer.kind, scenes[peer.form]), scenes[peer.form])
            print(f"{share:6.2f}  {peer.name}, {peer.kind}, {peer.form}: {peer.note}", flush=True)


if __name__ == "__main__":
    main()
