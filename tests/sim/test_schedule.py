"""How a study is handed out."""

from __future__ import annotations

import pytest

import zib
from zib.sim import Plan
from zib.sim.results import CollectRuns
from zib.sim.schedule import PARTS_PER_WORKER, Schedule

ENV = zib.env.GaussianMAB(means=[1.0, 2.0], probs=[0.3, 0.4], sigma=1.0)


def parts(monkeypatch, workers: int, least: int, replications: int, policies: int = 1):
    monkeypatch.setattr("zib.sim.plan.LONGEST_BLOCK", 40)
    specs = [zib.mab.UCB1(scale=float(1 + i)) for i in range(policies)]
    plan = Plan.of(specs, ENV, horizon=100, replications=replications)
    assert plan.block_length == 40
    schedule = Schedule(plan, None, CollectRuns(plan), lambda n: None)
    schedule.look_up()
    schedule.cut_for(workers, least)
    found = []
    while (part := schedule.next()) is not None:
        found.append(part)
    return found


@pytest.mark.parametrize("policies", [1, 3])
@pytest.mark.parametrize(("workers", "least"), [(2, 1), (2, 5), (50, 1)])
def test_every_replication_is_handed_out_once_and_the_last_parts_are_short(
    monkeypatch, workers, least, policies
):
    found = parts(monkeypatch, workers, least, 1000, policies)
    played = sorted((p.policy, i) for p in found for i in range(p.first, p.last))
    assert played == [(policy, i) for policy in range(policies) for i in range(1000)]
    lengths = [p.last - p.first for p in found]
    whole = 1000 * policies / (PARTS_PER_WORKER * workers)
    assert lengths[0] <= min(40, whole + 1)
    # the last row of blocks is cut for all workers too: nobody waits long for the others
    assert max(lengths[-policies:]) <= max(least, -(-40 * policies // (PARTS_PER_WORKER * workers)))
    assert min(p.last - p.first for p in found if p.last % 40 and p.last < 1000) >= least
