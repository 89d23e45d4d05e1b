"""What every policy does on one fixed seed, so that tidying up cannot change it unnoticed.

`python -m tests.record` writes `tests/recorded.json` anew. Do that only for a change that is meant,
and give its reason in CHANGELOG.md.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

import zib
from tests import contextual_policies, policies

FILE = Path(__file__).with_name("recorded.json")
ROUNDS = 3_000

# means that all differ, so that the regret of a round tells which arm was played
_MAB = zib.env.GaussianMAB(
    means=[1.0, 2.0, 1.5, 3.0, 0.4], probs=[0.30, 0.25, 0.40, 0.10, 0.9], sigma=0.8
)
_OUTCOMES = zib.env.OutcomesMAB(
    values=[1.0, 4.0],
    probs=[[0.20, 0.02], [0.10, 0.05], [0.05, 0.06], [0.30, 0.01], [0.02, 0.07]],
    sigma=[0.8, 3.0],
)
_TOLD = zib.env.ContextualOutcomes(
    beta=[[2.0, 0.5], [6.0, -1.0]],
    theta=[[-1.0, 1.0], [-2.0, -0.5]],
    centres=[[1.0, 0.2 * k] for k in range(5)],
)
_CONTEXTUAL = zib.env.RandomContextual(n_arms=5, dimension=3, sparsity=2, sigma=0.5)


def specs() -> dict[str, tuple[Any, Any]]:
    """Return every policy with the environment it is recorded in."""
    plain = {name: (spec, _MAB) for name, spec in policies.SPECS.items()}
    told = {name: (spec, _OUTCOMES) for name, spec in policies.TOLD.items()}
    contextual = {
        f"contextual {name}": (spec, _TOLD if name in contextual_policies.TOLD else _CONTEXTUAL)
        for name, spec in contextual_policies.SPECS.items()
    }
    return plain | told | contextual


def played(spec: Any, env: Any) -> dict[str, str]:
    """Return a hash of the decisions and the final regret of one run."""
    result = zib.simulate(
        {"policy": spec},
        env,
        horizon=ROUNDS,
        replications=1,
        seed=20261116,
        checkpoints=range(1, ROUNDS + 1),
        progress=False,
    )
    regret = result.regret[0, 0]
    steps = np.round(np.diff(regret, prepend=0.0), 9) + 0.0
    digest = hashlib.sha256(np.ascontiguousarray(steps).tobytes()).hexdigest()[:16]
    return {"decisions": digest, "regret": f"{regret[-1]:.9g}"}


if __name__ == "__main__":
    FILE.write_text(
        json.dumps({name: played(*both) for name, both in specs().items()}, indent=1) + "\n"
    )
