"""A small study that several test files run, and a program that runs it in children to be killed.

The program imports and compiles once and forks a child for every line of JSON it reads: `options`
of `zib.simulate`, and `out`, the file for the results. It answers with the child's process id and,
when that has ended, with its exit status.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback

import zib
import zib.sim.plan

ENV = zib.env.GaussianMAB(means=[1.0, 2.0, 1.5], probs=[0.3, 0.4, 0.2], sigma=1.0)
SPECS = {"narrow": zib.mab.UCB1(), "wide": zib.mab.UCB1(scale=3.0)}
REPLICATIONS = 40
BLOCKS = 20  # of four replications each


class Slow(zib.env.GaussianMAB):
    """Takes about a hundredth of a second per replication."""

    def sample(self, arm, rng, n):
        time.sleep(0.003)
        return super().sample(arm, rng, n)


SLOW = Slow(means=[1.0, 2.0, 1.5], probs=[0.3, 0.4, 0.2], sigma=1.0)


def simulate(env=ENV, **options) -> zib.Results:
    options = {"horizon": 100, "checkpoints": 10, "replications": REPLICATIONS} | options
    return zib.simulate(SPECS, env, progress=options.pop("progress", False), **options)


def main() -> None:
    zib.sim.plan.LONGEST_BLOCK = 4
    with contextlib.suppress(ImportError):
        import distributed  # noqa: F401
    simulate(backend="serial", replications=1)
    print("ready", flush=True)
    for line in sys.stdin:
        options = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setsid()
            try:
                out = options.pop("out")
                simulate(SLOW, **options).save(out)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        print(child, flush=True)
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    main()
