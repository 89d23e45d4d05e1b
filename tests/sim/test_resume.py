"""Simulations with a store: read again, gone on with, shared, and never other than without."""

from __future__ import annotations

import errno
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import zib
from zib.sim import Plan, Store, run, schedule
from zib.sim import store as store_module

ENV = zib.env.GaussianMAB(means=[1.0, 2.0, 1.5], probs=[0.3, 0.4, 0.2], sigma=1.0)
SPECS = {"ucb1": zib.mab.UCB1(), "ucb": zib.mab.ZIUCB(horizon=100, sigma=1.0)}
SMALL = 8  # replications per block


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr("zib.sim.plan.LONGEST_BLOCK", SMALL)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture(scope="module")
def whole():
    return simulate(replications=30)


def simulate(specs=SPECS, env=ENV, **options):
    options = {"horizon": 100, "replications": 20, "progress": False, "checkpoints": 10} | options
    return zib.simulate(specs, env, **options)


def same(one, other) -> None:
    n = one.regret.shape[1]
    for name in ("regret", "reward", "pulls"):
        assert np.array_equal(getattr(one, name), getattr(other, name)[:, :n]), name


class Counted:
    """Counts the replications that are played."""

    def __init__(self, monkeypatch) -> None:
        self.played: list[tuple[int, int]] = []
        original = run.play_part

        def count(plan, part, *rest):
            rows = original(plan, part, *rest)
            self.played += [(part.policy, part.first + i) for i in range(len(rows.regret))]
            return rows

        monkeypatch.setattr(run, "play_part", count)


@pytest.fixture
def counted(monkeypatch):
    return Counted(monkeypatch)


@pytest.mark.parametrize("backend", ["serial", "threads"])
def test_what_is_stored_is_read_and_not_played(store, whole, counted, backend):
    first = simulate(store=store, backend=backend)
    same(first, whole)
    assert sorted(counted.played) == [(p, r) for p in (0, 1) for r in range(20)]
    counted.played.clear()
    told = []
    again = simulate(store=store, backend=backend, progress=lambda *x: told.append(x))
    same(again, whole)
    assert counted.played == []
    assert told[-1] == (400, 400)
    assert again.provenance["plan_hash"] == first.provenance["plan_hash"]


def test_more_replications_and_other_policies_take_over_what_fits(store, whole, counted):
    simulate(store=store)
    counted.played.clear()
    more = simulate({**SPECS, "third": zib.mab.UCBV()}, replications=30, store=store)
    same(zib.Results(more.labels[:2], more.checkpoints, *(x[:2] for x in (
        more.regret, more.reward, more.pulls)), {}), whole)  # fmt: skip
    played = {policy: sorted(r for p, r in counted.played if p == policy) for policy in (0, 1, 2)}
    # blocks of 8: two whole ones are there, 16 to 20 was a short one
    assert played == {0: list(range(16, 30)), 1: list(range(16, 30)), 2: list(range(30))}


@pytest.mark.slow
def test_processes_use_the_store(store, whole):
    same(simulate(store=store, backend="processes", workers=2), whole)
    assert Plan.of(SPECS, ENV, horizon=100, replications=20, checkpoints=10).missing(store) == []


def test_a_damaged_block_is_played_again(store, whole, counted):
    simulate(store=store)
    counted.played.clear()
    plan = Plan.of(SPECS, ENV, horizon=100, replications=20, checkpoints=10)
    block = plan.blocks[2]
    path = store.path_of(plan.key_of(block))
    content = bytearray(path.read_bytes())
    content[-40] ^= 1
    path.write_bytes(content)
    with pytest.warns(RuntimeWarning, match=f"{plan.key_of(block)}.npz in the store is damaged"):
        same(simulate(store=store), whole)
    assert sorted(counted.played) == [(block.policy, r) for r in range(block.first, block.last)]
    counted.played.clear()
    same(simulate(store=store), whole)
    assert counted.played == []


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_disk_that_fails_loses_nothing_and_says_so_once(
    store, whole, counted, monkeypatch, reason
):
    write, written = store_module.write_atomically, []

    def failing(path, data, **options):
        if len(written) >= 3:
            raise OSError(reason, "the disk is in trouble")
        write(path, data, **options)
        written.append(path)

    monkeypatch.setattr(store_module, "write_atomically", failing)
    with pytest.warns(RuntimeWarning, match="cannot be written .the disk is in trouble") as caught:
        found = simulate(store=store, backend="serial")
    same(found, whole)
    assert len(caught) == 1
    assert found.complete
    assert store.info().files == 3
    monkeypatch.undo()
    monkeypatch.setattr("zib.sim.plan.LONGEST_BLOCK", SMALL)
    again = Counted(monkeypatch)
    same(simulate(store=store), whole)
    assert len(again.played) == 40 - 3 * SMALL


def test_a_real_file_system_that_is_full(tmp_path, whole):
    """A tmpfs of a few pages, where one may be mounted."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a file system")
    try:
        with pytest.warns(RuntimeWarning, match="cannot be written .No space left on device"):
            same(simulate(store=place), whole)
        kept = Store(place).info()
        assert kept.files > 0
        assert kept.leftovers == 0
        with pytest.warns(RuntimeWarning, match="cannot be written"):
            same(simulate(store=place), whole)
        assert Store(place).info().files >= kept.files
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_failed_run_goes_on_where_it_was(store, whole, counted, monkeypatch):
    calls = [0]
    original = zib.env.GaussianMAB.sample

    def failing(self, arm, rng, n):
        calls[0] += 1
        if calls[0] > 90:
            raise OSError("the database is gone")
        return original(self, arm, rng, n)

    monkeypatch.setattr(zib.env.GaussianMAB, "sample", failing)
    with pytest.raises(zib.SimulationError, match="the database is gone"):
        simulate(store=store, backend="serial")
    done = store.info().files
    assert 0 < done < 6
    assert not list(store.folder.rglob("*.lock"))
    monkeypatch.setattr(zib.env.GaussianMAB, "sample", original)
    counted.played.clear()
    same(simulate(store=store), whole)
    assert len(counted.played) < 40 - (done - 1) * SMALL


def test_blocks_that_another_process_has_are_waited_for(store, whole, counted):
    """Somebody holds two blocks: finishes one, dies over the other."""
    plan = Plan.of(SPECS, ENV, horizon=100, replications=20, checkpoints=10)
    finished, left = plan.blocks[0], plan.blocks[3]
    claims = [store.claim(plan.key_of(block)) for block in (finished, left)]
    rows = slice(finished.first, finished.last)

    def elsewhere():
        time.sleep(0.5)
        found = [x[0, rows] for x in (whole.regret, whole.reward, whole.pulls)]
        store.put(plan.key_of(finished), dict(zip(("regret", "reward", "pulls"), found)), {})
        for claim in claims:
            claim.release()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    same(simulate(store=store), whole)
    thread.join()
    assert (0, 0) not in counted.played
    assert (left.policy, left.first) in counted.played
    order = [(p, r) for p, r in counted.played if (p, r) == (left.policy, left.first)]
    assert counted.played.index(order[0]) >= 40 - 2 * SMALL  # last, when all others were done


@pytest.mark.slow
def test_two_processes_share_the_work(tmp_path, whole):
    code = f"""
    import json, sys, time, zib
    import zib.sim.plan
    from zib.sim import run
    zib.sim.plan.LONGEST_BLOCK = {SMALL}
    original, played = run.play_part, []
    def count(plan, part, *rest):
        time.sleep(0.05)
        rows = original(plan, part, *rest)
        played.extend([part.policy, part.first + i] for i in range(len(rows.regret)))
        return rows
    run.play_part = count
    env = zib.env.GaussianMAB(means=[1.0, 2.0, 1.5], probs=[0.3, 0.4, 0.2], sigma=1.0)
    specs = {{"ucb1": zib.mab.UCB1(), "ucb": zib.mab.ZIUCB(horizon=100, sigma=1.0)}}
    zib.simulate(specs, env, horizon=100, replications=1, progress=False)  # compiled from here on
    played.clear()
    print("ready", flush=True)
    sys.stdin.readline()
    found = zib.simulate(specs, env, horizon=100, replications=30, progress=False,
                         checkpoints=10, store="store", backend="serial")
    found.save(sys.argv[1])
    print(json.dumps(played))
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(code))
    children = [
        subprocess.Popen(
            [sys.executable, "script.py", f"{i}.npz"],
            cwd=tmp_path, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for i in range(2)
    ]  # fmt: skip
    for child in children:
        assert child.stdout.readline() == "ready\n"
    outputs = [None, None]

    def go(i):
        outputs[i] = children[i].communicate("go\n", timeout=120)[0]

    threads = [threading.Thread(target=go, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    import json

    shares = [json.loads(output) for output in outputs]
    assert all(shares), [len(s) for s in shares]
    played = sorted(map(tuple, shares[0] + shares[1]))
    assert played == [(p, r) for p in (0, 1) for r in range(30)]  # each once
    for i in range(2):
        same(zib.Results.load(tmp_path / f"{i}.npz"), whole)


def test_few_claims_are_held_at_a_time(store, whole, monkeypatch):
    monkeypatch.setattr(schedule, "MOST_CLAIMS", 0)
    claimed = []
    monkeypatch.setattr(Store, "claim", lambda self, key: claimed.append(key))
    same(simulate(store=store), whole)
    assert claimed == []


def test_interrupted_run_goes_on_with_what_is_stored(store, whole, counted):
    reached = []

    def stop(done, total):
        reached.append(done)
        if done >= 250:
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="interrupted: .* finished and kept"):
        partial = simulate(store=store, backend="serial", progress=stop)
    assert not partial.complete
    kept = store.info().files
    assert kept == 3
    counted.played.clear()
    same(simulate(store=store), whole)
    assert len(counted.played) == 40 - 3 * SMALL


def test_claims_that_a_dead_process_left_on_finished_blocks_are_removed(store, whole):
    """It was killed between keeping the block and giving up its claim."""
    simulate(store=store)
    plan = Plan.of(SPECS, ENV, horizon=100, replications=20, checkpoints=10)
    keys = [plan.key_of(block) for block in plan.blocks]
    left = [store.path_of(key).with_suffix(".lock") for key in keys[:2]]
    for path in left:
        path.touch()
    held = store.claim(keys[2])  # this one is alive
    same(simulate(store=store), whole)
    assert not any(path.exists() for path in left)
    assert store.claim(keys[2]) is None
    held.release()
