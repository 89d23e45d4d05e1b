"""`backend="dask"`: real schedulers and workers, some of which die or do not fit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings

import numpy as np
import pytest
from tests.sim.cluster import ROOT, Cluster
from tests.sim.study import REPLICATIONS, SLOW, simulate

import zib
from zib.core import cluster as dask_backend
from zib.sim import Store

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr("zib.sim.plan.LONGEST_BLOCK", 4)
    # of Dask's own: sockets of workers that were killed are collected late
    warnings.simplefilter("ignore", ResourceWarning)


@pytest.fixture(scope="module")
def whole():
    return simulate(backend="serial")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = Cluster(tmp_path_factory.mktemp("cluster"), 2)
    yield made
    made.close()


def same(one, other) -> None:
    for name in ("regret", "reward", "pulls"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_a_cluster_made_for_the_run(whole, tmp_path):
    same(simulate(backend="dask", workers=2, store=tmp_path), whole)
    assert Store(tmp_path).info().files == 20
    same(simulate(backend="dask", workers=2, store=tmp_path), whole)  # read: no cluster is made


def test_a_cluster_that_is_there(whole, cluster):
    told = []
    found = simulate(backend="dask", scheduler=cluster.address, progress=lambda *x: told.append(x))
    same(found, whole)
    total = 2 * REPLICATIONS * 10
    assert told[-1] == (total, total)
    assert found.provenance["backend"] == "dask"


def test_a_contextual_study(cluster, tmp_path):
    """Contexts are drawn and models fitted on the workers, the same as here to the last bit."""

    def played(**options):
        return zib.simulate(
            {"ts": zib.contextual.LaplaceTS(), "zi": zib.contextual.ZIUCB(horizon=60, sigma=0.5)},
            zib.env.make("paper-contextual-gaussian-s3-probit-v1"),
            horizon=60,
            replications=6,
            seed=3,
            checkpoints=5,
            progress=False,
            **options,
        )

    here = played(backend="serial", store=tmp_path)
    there = played(backend="dask", scheduler=cluster.address)
    same(there, here)
    assert there.provenance["plan_hash"] == here.provenance["plan_hash"]
    assert there.regret[:, :, -1].std() > 0.0


def test_a_summary(cluster):
    options = {"backend": "dask", "scheduler": cluster.address}
    one, two = (simulate(keep="summary", **x) for x in (options, {"backend": "serial"}))
    assert all(np.array_equal(one._arrays[k], two._arrays[k]) for k in one._arrays)


def test_a_worker_that_is_killed_costs_its_pieces_only(whole, cluster, tmp_path):
    cluster.workers.append(cluster.add_worker())
    while len(cluster.names()) < 3:
        time.sleep(0.1)
    killed = []

    def kill(done, total):
        if done > total / 4 and not killed:
            killed.append(cluster.workers.pop(0))
            os.kill(killed[0].pid, signal.SIGKILL)

    same(
        simulate(SLOW, backend="dask", scheduler=cluster.address, progress=kill, store=tmp_path),
        whole,
    )
    assert killed[0].wait(10) == -signal.SIGKILL
    assert len(cluster.names()) == 2


PRELOAD = """
from importlib import metadata
def version(name, original=metadata.version):
    return "0.1.2" if name in ("numba", "numpy", "zib") else original(name)
metadata.version = version
"""


@pytest.fixture
def odd(tmp_path, cluster):
    """Starts a worker that has other versions."""
    preload = tmp_path / "preload.py"
    preload.write_text(PRELOAD)
    started = []

    def start():
        started.append(cluster.add_worker("--preload", str(preload)))
        return started[0]

    yield start
    for worker in started:
        worker.kill()
        worker.wait()
    while len(cluster.names()) > 2:
        time.sleep(0.1)


def test_a_worker_with_other_versions_is_refused_before_anything_runs(tmp_path, cluster, odd):
    odd()
    while len(cluster.names()) < 3:
        time.sleep(0.1)
    with pytest.raises(dask_backend.WorkerRefused, match="the worker tcp://127") as caught:
        simulate(backend="dask", scheduler=cluster.address, store=tmp_path / "store")
    for name in ("zib", "numba", "numpy"):
        here = dask_backend.versions()[name]
        there = "0.1.2" + here[here.index(" ") :] if name == "zib" else "0.1.2"
        assert f"{name} {there} there and {name} {here} here" in str(caught.value)
    assert "machine" not in str(caught.value)
    assert not (tmp_path / "store").exists()


def test_a_worker_that_joins_late_with_other_versions_is_turned_away(whole, cluster, odd):
    started = []

    def join(done, total):
        if not started:
            started.append(odd())
            while len(cluster.names()) < 3:
                time.sleep(0.1)

    with pytest.warns(RuntimeWarning, match="is refused.*numba 0.1.2 there and numba") as caught:
        found = simulate(SLOW, backend="dask", scheduler=cluster.address, progress=join)
    same(found, whole)
    assert len(caught) <= dask_backend.QUEUED
    started[0].wait(30)
    assert len(cluster.names()) == 2


class Broken(zib.env.GaussianMAB):
    def sample(self, arm, rng, n):
        raise OSError("the database is gone")


def test_an_error_on_a_worker_is_the_users_error(cluster):
    env = Broken(means=[1.0, 2.0], probs=[0.3, 0.4], sigma=1.0)
    with pytest.raises(OSError, match="the database is gone"):
        simulate(env, backend="dask", scheduler=cluster.address)


def test_interrupted(whole, cluster, tmp_path):
    def stop(done, total):
        if done > total / 3:
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="interrupted: "):
        partial = simulate(
            SLOW, backend="dask", scheduler=cluster.address, progress=stop, store=tmp_path
        )
    assert 0 < partial.finished.sum() < 2 * REPLICATIONS
    assert not list(tmp_path.rglob("*.lock"))
    again = simulate(SLOW, backend="dask", scheduler=cluster.address, store=tmp_path)
    same(again, whole)


def test_ctrl_c_of_a_terminal_reaches_all_processes(tmp_path):
    """The signal goes to the workers of the local cluster, too; they must not mind."""
    code = """
    import sys, threading, os, signal, warnings
    from tests.sim.study import SLOW, simulate
    import zib.sim.plan
    if __name__ == "__main__":
        zib.sim.plan.LONGEST_BLOCK = 4
        signal.signal(signal.SIGINT, signal.default_int_handler)
        def stop(done, total):
            if done > total / 5:
                os.killpg(0, signal.SIGINT)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = simulate(SLOW, backend="dask", workers=2, progress=stop)
        print(int(found.finished.sum()), [str(w.message) for w in caught])
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "finished and kept" in done.stdout
    assert 0 < int(done.stdout.split()[0]) < 2 * REPLICATIONS
    assert "Traceback" not in done.stderr


def test_what_cannot_work_is_said_before_anything_runs(monkeypatch):
    with pytest.raises(zib.InvalidParameterError, match="`scheduler` is for `backend`='dask'"):
        simulate(scheduler="tcp://127.0.0.1:1")
    monkeypatch.setattr(dask_backend, "CONNECT", 0.5)
    with pytest.raises(zib.InvalidParameterError, match="does not answer"):
        simulate(backend="dask", scheduler="tcp://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(zib.InvalidParameterError, match="pip install 'zib.dask.'"):
        simulate(backend="dask")
