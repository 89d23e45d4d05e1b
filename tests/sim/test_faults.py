"""Studies that are killed at random moments: every rerun ends with the same bits."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.sim.cluster import ROOT, Cluster
from tests.sim.study import BLOCKS, SLOW, simulate

import zib
from zib.sim import Store

pytestmark = pytest.mark.slow
KILLS = {"threads": 15, "processes": 3, "dask": 12}


class Children:
    """Runs the study in forked children of a process that has imported and compiled already."""

    def __init__(self) -> None:
        paths = [str(ROOT), *filter(None, sys.path)]
        self._parent = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("study.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )  # fmt: skip
        assert self._parent.stdout.readline() == "ready\n"

    def start(self, **options) -> int:
        self._parent.stdin.write(json.dumps(options) + "\n")
        self._parent.stdin.flush()
        return int(self._parent.stdout.readline())

    def end(self) -> int:
        """Wait for the child; 0 if it finished, minus the signal if one killed it."""
        return os.waitstatus_to_exitcode(int(self._parent.stdout.readline()))

    def close(self) -> None:
        self._parent.stdin.close()
        self._parent.stdout.close()
        self._parent.wait(30)


@pytest.fixture(scope="module")
def children():
    made = Children()
    yield made
    made.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    pytest.importorskip("distributed")
    made = Cluster(tmp_path_factory.mktemp("cluster"), 2)
    yield made
    made.close()


@pytest.fixture(scope="module")
def whole():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zib.sim.plan.LONGEST_BLOCK", 4)
        return simulate(backend="serial")


def files(store: Store) -> int:
    return store.info().files


def wait_for(what, seconds=60.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.002)


def kill(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it was faster
        os.kill(child, signal.SIGKILL)


def is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("backend", list(KILLS))
def test_killed_at_random_moments(backend, children, whole, tmp_path, rng, request):
    options = {"backend": backend, "workers": 2}
    if backend == "dask":
        options = {"backend": backend, "scheduler": request.getfixturevalue("cluster").address}

    def run(store, out) -> int:
        return children.start(**options, store=str(store.folder), out=str(out))

    started = time.monotonic()  # once undisturbed: how long it takes
    run(Store(tmp_path / "undisturbed"), tmp_path / "whole.npz")
    assert children.end() == 0
    length = time.monotonic() - started
    left = []
    for i in range(KILLS[backend]):
        store, out = Store(tmp_path / str(i)), tmp_path / f"{i}.npz"
        child = run(store, out)
        if i % 3 == 0:  # at any moment, also while it starts or ends
            time.sleep(rng.uniform(0.0, length))
        else:  # at any moment between the first block and the last
            n = rng.integers(1, BLOCKS - 2)
            wait_for(lambda store=store, n=n: files(store) >= n)
            time.sleep(rng.uniform(0.0, 0.02))
        kill(child)
        assert children.end() in (0, -signal.SIGKILL)
        left.append(files(store))
        wait_for(lambda child=child: is_gone(child))  # no worker stays behind
        run(store, out)
        assert children.end() == 0
        found = zib.Results.load(out)
        for name in ("regret", "reward", "pulls"):
            assert np.array_equal(getattr(found, name), getattr(whole, name)), (i, left)
        assert files(store) == BLOCKS
        assert not list(store.folder.rglob("*.lock"))
    assert any(0 < n < BLOCKS for n in left), left


def test_killed_again_and_again_it_still_comes_to_an_end(children, whole, tmp_path, rng):
    """Each life adds a little to the same store."""
    store, lives = Store(tmp_path / "store"), 0
    while files(store) < BLOCKS:
        before = files(store)
        child = children.start(
            backend="threads", workers=2, store=str(store.folder), out=str(tmp_path / "out.npz")
        )
        wait_for(lambda before=before: files(store) > before)
        time.sleep(rng.uniform(0.0, 0.1))
        kill(child)
        children.end()
        lives += 1
    assert 1 < lives <= BLOCKS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zib.sim.plan.LONGEST_BLOCK", 4)
        found = simulate(SLOW, store=store)
    assert np.array_equal(found.regret, whole.regret)


def test_a_worker_process_that_dies_loses_nothing_finished(children, whole, tmp_path):
    """A process of the pool is killed: the run ends with an error, the next one goes on."""
    store, out = Store(tmp_path / "store"), str(tmp_path / "out.npz")
    options = {"backend": "processes", "workers": 2, "store": str(store.folder), "out": out}
    options["replications"] = 300  # some seconds, so that it is not over before the worker is found
    child = children.start(**options)
    wait_for(lambda: files(store) > 2)
    listed = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "-g", str(child)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (worker, *_) = [int(x.split()[0]) for x in listed.splitlines() if "spawn_main" in x]
    os.kill(worker, signal.SIGKILL)
    assert children.end() == 1
    kept = files(store)
    assert kept > 2
    children.start(**options | {"backend": "threads"})
    assert children.end() == 0
    found = zib.Results.load(out)
    assert found.complete
    assert np.array_equal(found.regret[:, : whole.regret.shape[1]], whole.regret)
