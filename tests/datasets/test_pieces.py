"""Logs read in pieces, here and by workers, give the same numbers as in one go, bit for bit."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from zib.core.cluster import Machines
from zib.logs import LoggedData, LogScan, passes
from zib.logs.advise import advise
from zib.logs.advise.collect import collect
from zib.logs.ope import Strata, evaluate, learned


class Posted(Machines):
    """Workers in this process: everything they get and give goes through pickle."""

    def __init__(self) -> None:
        super().__init__(client=object())
        self.parts = 0

    def _spread(self, function, shared, parts):
        import cloudpickle

        data = cloudpickle.dumps((function, shared))
        for part in parts:
            self.parts += 1
            call, common = pickle.loads(data)
            yield pickle.loads(cloudpickle.dumps(call(common, pickle.loads(pickle.dumps(part)))))


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(passes, "BLOCK", 1_024)
    monkeypatch.setattr(passes, "PIECE", 2)


@pytest.fixture
def posted():
    made = Posted()
    token = passes._MACHINES.set(made)
    yield made
    passes._MACHINES.reset(token)


def a_log(n: int = 9_000, seed: int = 4, clusters: bool = True) -> LoggedData:
    rng = np.random.default_rng(seed)
    arm = rng.integers(0, 3, n)
    context = np.column_stack([rng.normal(size=n), rng.integers(0, 2, n)])
    pays = rng.random(n) < 0.05 + 0.03 * arm
    return LoggedData.from_arrays(
        np.array(["a", "b", "c"])[arm],
        np.where(pays, rng.lognormal(1.0, 0.7, n), 0.0),
        propensity=np.full(n, 1 / 3),
        context=context,
        time=np.sort(rng.random(n)) * 1e6 + 1.7e9,
        cluster=rng.integers(0, 800, n) if clusters else None,
    )


def same(one, other, path="") -> None:
    """Compare everything in two results to the last bit."""
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, path
        assert np.array_equal(one, other, equal_nan=one.dtype.kind == "f"), path
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            same(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), path
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            same(a, b, f"{path}[{i}]")
    else:
        assert one == other or (one != one and other != other), (path, one, other)


def advice(log, **options):
    found = advise(log, simulate=False, **options).to_dict()
    return {name: value for name, value in found.items() if name != "provenance"}


def test_what_advice_collects_is_the_same_by_workers(small, posted):
    log = a_log()
    there = collected(log)
    assert posted.parts >= 5
    passes._MACHINES.set(Machines())
    same(there, collected(log))


def collected(log):
    """Return what advice keeps of a log, down to arrays."""
    return arrays(collect(log, 0, lambda share: None))


def arrays(found):
    if hasattr(found, "__dict__"):
        return {name: arrays(value) for name, value in vars(found).items()}
    return [arrays(x) for x in found] if isinstance(found, (list, tuple)) else found


@pytest.mark.slow
def test_advice_is_the_same_by_a_cluster(small):
    pytest.importorskip("distributed")
    log = a_log(4_000)
    same(advice(log), advice(log, backend="dask", workers=2))


def observational(n: int = 9_000) -> LoggedData:
    """A log in which the context has a say in which arm is played."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(n, 2))
    arm = (rng.random(n) < 1 / (1 + np.exp(-x[:, 0]))).astype(int)
    pays = rng.random(n) < 0.1 + 0.05 * arm + 0.05 * (x[:, 0] > 0)
    reward = np.where(pays, rng.lognormal(1.0, 0.7, n), 0.0)
    return LoggedData.from_arrays(arm, reward, context=x)


@pytest.mark.slow
@pytest.mark.parametrize("log", [a_log(), observational()], ids=["drawn", "observed"])
def test_advice_hardly_depends_on_the_pieces(monkeypatch, log):
    """What a reader forgot to merge would be missing."""
    monkeypatch.setattr(passes, "BLOCK", 1_024)
    found = []
    for piece in (1, 1_000):
        monkeypatch.setattr(passes, "PIECE", piece)
        found.append(advice(log))
    close(*found)


@pytest.mark.slow
def test_advice_on_an_observed_log_is_the_same_by_workers(small, posted):
    log = observational()
    there = advice(log)
    assert there["balance"]["fails"]
    passes._MACHINES.set(Machines())
    same(there, advice(log))


def close(one, other, path="") -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            close(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), path
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            close(a, b, f"{path}[{i}]")
    elif isinstance(one, float) and isinstance(other, float):
        assert other == pytest.approx(one, rel=1e-7, abs=1e-9, nan_ok=True), path
    else:
        assert one == other, path


SOURCES = {"logged": "logged", "strata": Strata(["x1"]), "estimated": "estimated"}


def values(log, source, interval="bootstrap"):
    found = evaluate(
        log,
        {"b": "b", "mixed": {"a": 0.2, "b": 0.3, "c": 0.5}, "best": learned("best")},
        estimators=("ips", "dr", "replay"),
        propensities=SOURCES[source],
        baseline="logging",
        interval=interval,
        replicates=200,
    )
    rows = (*found.values, *found.differences, *found.diagnostics)
    return [row._asdict() if hasattr(row, "_asdict") else vars(row) for row in rows]


@pytest.mark.parametrize(
    ("source", "interval"),
    [
        ("logged", "bootstrap"),
        pytest.param("strata", "bootstrap", marks=pytest.mark.slow),
        pytest.param("logged", "corrected", marks=pytest.mark.slow),
        pytest.param("estimated", "corrected", marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore:.*estimated:UserWarning")
def test_evaluation_is_the_same_by_workers(small, posted, source, interval):
    log = a_log(clusters=interval == "corrected")
    there = values(log, source, interval)
    assert posted.parts >= 5
    passes._MACHINES.set(Machines())
    same(there, values(log, source, interval))


@pytest.mark.slow
@pytest.mark.parametrize("interval", ["bootstrap", "corrected"])
def test_evaluation_hardly_depends_on_the_pieces(monkeypatch, interval):
    monkeypatch.setattr(passes, "BLOCK", 1_024)
    log, found = a_log(clusters=interval == "corrected"), []
    for piece in (1, 1_000):
        monkeypatch.setattr(passes, "PIECE", piece)
        found.append(values(log, "strata", interval))
    close(*found)


def test_workers_read_files_by_themselves(small, posted, tmp_path, monkeypatch):
    a_log().to_frame().to_parquet(tmp_path / "log.parquet", row_group_size=700)
    roles = {"arm": "arm", "reward": "reward", "propensity": "propensity", "context": ["x0", "x1"]}
    scan = LogScan(tmp_path / "log.parquet", **roles)
    with monkeypatch.context() as patched:
        patched.setattr(LogScan, "batches", None)  # nobody reads all of it
        there = collected(scan)
    assert posted.parts >= 5
    passes._MACHINES.set(Machines())
    same(there, collected(scan))
