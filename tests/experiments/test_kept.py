"""Finished experiments in the store: read when nothing changed, run when anything did."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.experiments.test_runner import PNG, fake_record

from zib.experiments import runner
from zib.experiments.loan_study import KZ_FILE
from zib.experiments.record import Context, Record
from zib.experiments.runner import reproduce
from zib.sim import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def fake(monkeypatch):
    """fig2, replaced by one that takes no time; `calls` has the contexts it was run with."""
    item = SimpleNamespace(
        __module__="zib.experiments.fig2", weight=1.0, compiles_contextual=False, calls=[]
    )

    def run(context):
        item.calls.append(context)
        context.folder.mkdir(parents=True, exist_ok=True)
        (context.folder / "x.png").write_bytes(PNG)
        return fake_record("fig2", context.scale, item.interrupted)

    item.run, item.interrupted = run, False
    monkeypatch.setattr(runner, "experiment_of", lambda name: item)
    return item


def test_an_unchanged_item_is_read(fake, store, tmp_path):
    (tmp_path / "one" / "fig2").mkdir(parents=True)
    (tmp_path / "one" / "fig2" / "old.csv").write_text("of an earlier run")
    first = reproduce(["fig2"], out=tmp_path / "one", store=store)["fig2"]
    second = reproduce(["fig2"], out=tmp_path / "two", store=store)["fig2"]
    assert len(fake.calls) == 1
    assert fake.calls[0].store is store
    assert (tmp_path / "two" / "fig2" / "x.png").read_bytes() == PNG
    assert not (tmp_path / "two" / "fig2" / "old.csv").exists()
    assert second.verdicts == first.verdicts
    assert second.seconds == first.seconds
    assert "from_store" not in first.provenance
    assert second.provenance["from_store"] is True
    assert "Taken from the store: computed at now in 1.5 s" in second.notes[-1]
    assert Record.load(tmp_path / "two" / "fig2" / "record.json") == second
    assert "Taken from the store" in (tmp_path / "two" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("what", ["scale", "seed", "code", "version", "data"])
def test_any_change_runs_it_again(fake, store, tmp_path, monkeypatch, what):
    monkeypatch.delenv("ZIB_DATA", raising=False)
    reproduce(["fig2"], out=tmp_path, store=store)
    options = {}
    if what == "scale":
        options["scale"] = "paper"
    elif what == "seed":
        options["seed"] = 1
    elif what == "code":
        monkeypatch.setattr(runner, "user_code", lambda modules: "edited")
    elif what == "version":
        monkeypatch.setattr(runner, "_version", lambda package: "tomorrow's")
    else:
        file = tmp_path / "data" / KZ_FILE
        file.parent.mkdir(parents=True)
        file.write_text("records")
        monkeypatch.setenv("ZIB_DATA", str(tmp_path / "data"))
    reproduce(["fig2"], out=tmp_path, store=store, **options)
    assert len(fake.calls) == 2
    reproduce(["fig2"], out=tmp_path, store=store, **options)
    assert len(fake.calls) == 2


def test_interrupted_items_are_not_kept(fake, store, tmp_path):
    fake.interrupted = True
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            reproduce(["fig2"], out=tmp_path, store=store)
    assert len(fake.calls) == 2
    assert store.info().files == 0


def test_a_damaged_item_is_run_again(fake, store, tmp_path):
    reproduce(["fig2"], out=tmp_path, store=store)
    (path,) = store.folder.rglob("*.npz")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.warns(RuntimeWarning, match="damaged"):
        reproduce(["fig2"], out=tmp_path, store=store)
    assert len(fake.calls) == 2


def test_a_store_that_cannot_be_written_costs_nothing(fake, tmp_path, monkeypatch):
    def refuse(self, *rest):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Store, "put", refuse)
    with pytest.warns(RuntimeWarning, match="finished but cannot be kept .*No space left"):
        found = reproduce(["fig2"], out=tmp_path / "out", store=tmp_path / "store")
    assert list(found) == ["fig2"]
    assert (tmp_path / "out" / "report.html").exists()


def test_without_a_store_nothing_is_kept(fake, tmp_path):
    for _ in range(2):
        reproduce(["fig2"], out=tmp_path)
    assert len(fake.calls) == 2
    assert fake.calls[0].store is None


def test_every_experiment_has_a_key_of_its_own():
    context = Context("quick", 0, None, Path())
    keys = {runner.key_of(item, context) for item in runner.experiments().values()}
    assert None not in keys
    assert len(keys) == len(runner.experiments())


def test_a_real_item_twice(store, tmp_path):
    reproduce(["fig1a"], out=tmp_path / "one", store=store)
    found = reproduce(["fig1a"], out=tmp_path / "two", store=store)
    assert found["fig1a"].provenance["from_store"]
    files = {p.name for p in (tmp_path / "one" / "fig1a").iterdir()}
    assert files == {p.name for p in (tmp_path / "two" / "fig1a").iterdir()}
    for name in files - {"record.json"}:
        one, two = ((tmp_path / x / "fig1a" / name).read_bytes() for x in ("one", "two"))
        assert one == two
