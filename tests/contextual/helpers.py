"""Policies taught a given history, and looked into."""

from __future__ import annotations

from typing import Any

import numpy as np

from zib.contextual import JointUCB, entry, policy
from zib.env.contextual import ContextBlock
from zib.sim.loop import advance_contextual as advance


class Pupil:
    """A policy that plays a history of one action per round, so that it learns just that.

    JointUCB, which most tests are about, runs compiled. What it would take to compile another
    policy is more than a test saves.
    """

    def __init__(self, spec: Any, d: int, q: int | None = None, *, compiled: bool | None = None):
        self.spec = spec
        if compiled is None:
            compiled = isinstance(spec, JointUCB)
        self.d, self.q = d, d if q is None else q
        self.state = policy.init(spec, self.d, self.q)
        self.rng = np.random.default_rng(1)
        self.space = entry.buffers(1, self.d, self.q)
        make, self.play = (
            (entry.pin, advance.for_spec(spec))
            if compiled
            else (entry.loose_pin, advance.interpreted)
        )
        self.pin = make(spec, self.state, self.rng, self.space)
        self.taught = 0

    def teach(self, z: Any, w: Any, rewards: Any) -> Pupil:
        n = len(rewards)
        block = ContextBlock(
            np.zeros((n, 1), dtype=np.int64),
            np.array(z, dtype=float).reshape(n, self.d, 1),
            np.array(w, dtype=float).reshape(n, self.q, 1),
            np.array(rewards, dtype=float).reshape(n, 1),
            np.zeros((n, 1)),
            np.ones(n, dtype=np.int64),
        )
        kinds = np.zeros((n, 1), dtype=np.int16)
        self.play(self.pin, block, kinds, 0, n, np.zeros(2), np.zeros(1, dtype=np.int64))
        self.taught += n
        return self

    def scores(self, z: Any, w: Any, rng: Any = None) -> Any:
        """Return the scores of actions given in rows."""
        out = np.zeros(len(z))
        work = policy.scratch(len(z), self.d, self.q)
        arms = np.arange(len(z))
        columns = np.ascontiguousarray(np.transpose(z)), np.ascontiguousarray(np.transpose(w))
        policy.scores(self.spec, self.state, arms, *columns, rng, work, out)
        return out

    def moments(self, z: Any, w: Any) -> Any:
        out = np.zeros((5, len(z)))
        work = policy.scratch(len(z), self.d, self.q)
        arms = np.arange(len(z))
        columns = np.ascontiguousarray(np.transpose(z)), np.ascontiguousarray(np.transpose(w))
        policy.moments(self.spec, self.state, arms, *columns, work, out)
        return out


def path(pupil: Pupil, model: Any, z: Any, w: Any, rewards: Any, stops: Any) -> Any:
    """Teach a history and return the coefficients of `model` after each number of rounds."""
    found = []
    for stop in stops:
        chosen = slice(pupil.taught, stop)
        pupil.teach(z[chosen], w[chosen], rewards[chosen])
        found.append(model.coef.copy())
    return np.array(found)


def until_refit(pupil: Pupil, model: Any, z: Any, w: Any, rewards: Any, least: int) -> int:
    """Teach until the model was refitted with at least so many observations; return how many.

    Every round must teach the model.
    """
    while pupil.taught < len(rewards):
        planned = model.next_refit[0]
        stop = max(pupil.taught + 1, int(planned) - 1)
        chosen = slice(pupil.taught, stop)
        last = stop == pupil.taught + 1
        pupil.teach(z[chosen], w[chosen], rewards[chosen])
        if last and model.next_refit[0] != planned and model.seen[0] >= least:
            return pupil.taught
    raise AssertionError("the history is too short: it may take a quarter more than `least`")
