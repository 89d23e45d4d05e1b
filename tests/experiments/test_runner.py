"""Running experiments: ids, folders, records, reports, interruptions."""

import json
import re
import sys
import time
from contextlib import nullcontext
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest

from zib.experiments import EXPERIMENTS, runner
from zib.experiments.fig2 import Figure2
from zib.experiments.fig3 import Figure3
from zib.experiments.record import Context, Picture, Record, Setting, Table, Verdict
from zib.experiments.report import render, write_report
from zib.experiments.runner import OutputError, UnknownExperiment, reproduce, resolve

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360000000000500010d0a2db40000000049454e44ae426082"
)


def fake_record(name, scale="quick", interrupted=False):
    return Record(
        id=name,
        title=f"Item {name} <script>alert(1)</script>",
        about="About & <b>bold</b>",
        scale=scale,
        settings=(Setting("arms", "K < 10", "paper"), Setting("sigma", "0.5", "ours")),
        pictures=(Picture("x", "a caption", 'an "alternative"'),),
        tables=(Table("title", ("policy", "regret"), (("a<b", "1.5"), ("c", "2")), "note"),),
        verdicts=(
            Verdict("ours is <lower>", "holds", "holds in all 2 cases", ("a & b",)),
            Verdict("theirs is linear", "fails", "does not hold"),
            Verdict("both", "partly", "holds only for x"),
            Verdict("none", "open", "undecided"),
        ),
        notes=("a note",),
        seconds=1.5,
        provenance={"zib": "0.1.0", "seed": 0, "plan_hash": "abc", "time": "now"},
        interrupted=interrupted,
    )


@pytest.fixture
def fakes(monkeypatch):
    """Replace the experiments by two that take no time; returns the list of calls."""
    calls = []

    def item(name, interrupted=False):
        def run(context):
            calls.append((name, context.scale, context.seed))
            context.tell("half", 0.5)
            context.folder.mkdir(parents=True, exist_ok=True)
            (context.folder / "x.png").write_bytes(PNG)
            return fake_record(name, context.scale, interrupted)

        return SimpleNamespace(run=run, weight=1.0)

    items = {name: item(name) for name in EXPERIMENTS}
    monkeypatch.setattr(runner, "experiment_of", items.__getitem__)
    monkeypatch.setattr(runner, "compiling_ahead", lambda items: nullcontext())
    return SimpleNamespace(calls=calls, items=items, item=item)


def test_ids():
    assert resolve(None) == list(EXPERIMENTS)
    assert resolve(["figs6", "FIG1A"]) == ["fig1a", "figS6"]
    with pytest.raises(UnknownExperiment, match="no experiment 'fig22'; did you mean 'fig2'"):
        resolve(["fig22"])
    with pytest.raises(UnknownExperiment, match="did you mean"):
        resolve(["something else"])


def test_experiments_are_found_in_their_files_in_the_order_of_the_paper():
    paper = [
        "fig1a", "fig1b", "fig2", "fig3", "fig4", "figS1", "figS2", "figS3", "links", "figS4",
        "figS5", "tabS1", "figS6",
    ]  # fmt: skip
    assert [name for name in EXPERIMENTS if name in paper] == paper
    orders = [item.order for item in runner.experiments().values()]
    assert len(orders) == len(set(orders))


MINE = '''"""How often does a coin land on heads?"""

from zib.core.rng import Role, stream
from zib.experiments.harness import Experiment, Scaled
from zib.experiments.record import Setting, Verdict


class Coin(Experiment[float]):
    """One share of heads."""

    order = 99
    title = "A coin"
    about = "Tossed many times."
    weight = 0.1
    tosses = Scaled(quick=1_000, paper=100_000)

    def settings(self):
        return [Setting("tosses", str(self.tosses), "ours")]

    def measure(self):
        return float(stream(self.context.seed, Role.ENVIRONMENT).random(self.tosses).mean())

    def claims(self, found):
        yield Verdict("It is fair", "holds" if abs(found - 0.5) < 0.1 else "fails", f"{found:.2f}")
'''


def test_an_experiment_is_added_by_one_file(tmp_path, monkeypatch):
    (tmp_path / "coin.py").write_text(MINE)
    package = sys.modules["zib.experiments"]
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    runner.experiments.cache_clear()
    try:
        found = reproduce(["coin"], out=tmp_path / "out")["coin"]
        assert list(runner.experiments())[-1] == "coin"
    finally:
        runner.experiments.cache_clear()
        del sys.modules["zib.experiments.coin"]
        del package.coin
    assert found.verdicts[0].status == "holds"
    assert [(s.name, s.value) for s in found.settings] == [("tosses", "1000"), ("seed", "0")]
    assert 'id="coin"' in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_reproduce_writes_everything(fakes, tmp_path):
    told = []
    out = tmp_path / "deep" / "results"
    finished = reproduce(out=out, seed=7, tell=lambda *a: told.append(a))
    assert list(finished) == list(EXPERIMENTS)
    assert {call[1:] for call in fakes.calls} == {("quick", 7)}
    shares = [share for *_, share in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    page = (out / "report.html").read_text(encoding="utf-8")
    for name in EXPERIMENTS:
        assert f'id="{name}"' in page
        assert Record.load(out / name / "record.json") == finished[name]


def test_report_grows_and_keeps_earlier_items(fakes, tmp_path):
    reproduce(["fig2"], out=tmp_path)
    reproduce(["fig1a"], out=tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.index('<h2 id="fig1a"') < page.index('<h2 id="fig2"')


def test_interruption_keeps_what_is_finished(fakes, tmp_path):
    def stop(context):
        raise KeyboardInterrupt

    fakes.items["fig2"].run = stop
    with pytest.raises(KeyboardInterrupt):
        reproduce(out=tmp_path)
    assert (tmp_path / "fig1b" / "record.json").exists()
    assert not (tmp_path / "fig2").exists()
    assert '<h2 id="fig1b"' in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_partial_item_is_kept_and_the_run_stops(fakes, tmp_path):
    fakes.items["fig1b"] = fakes.item("fig1b", interrupted=True)
    with pytest.raises(KeyboardInterrupt):
        reproduce(out=tmp_path)
    assert [call[0] for call in fakes.calls] == ["fig1a", "fig1b"]
    assert (tmp_path / "fig1b" / "record.json").exists()


def test_bad_folder_is_found_before_anything_runs(fakes, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("x")
    with pytest.raises(OutputError, match="cannot write to the output folder"):
        reproduce(out=blocked / "results")
    assert fakes.calls == []


def test_read_only_folder(fakes, tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(runner.tempfile, "TemporaryFile", refuse)
    with pytest.raises(OutputError, match="output folder .*: Permission denied"):
        reproduce(out=tmp_path / "results")
    assert fakes.calls == []


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"format": "other"}', '{"format": "zib.experiments.Record/1"}']
)
def test_damaged_records_are_left_out(tmp_path, damage):
    (tmp_path / "fig2").mkdir()
    (tmp_path / "fig2" / "record.json").write_text(damage)
    assert runner.load_records(tmp_path) == {}


class _Audit(HTMLParser):
    """Collects what a page loads and whether its tags are balanced."""

    VOID = frozenset({"meta", "img", "br", "hr", "link", "input"})

    def __init__(self):
        super().__init__()
        self.stack, self.loaded, self.images, self.tags = [], [], [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append(tag)
        if tag == "img":
            self.images.append(attrs)
        if "src" in attrs and not attrs["src"].startswith("data:"):
            self.loaded.append(attrs["src"])
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag


def test_report_is_self_contained_and_escaped(tmp_path):
    (tmp_path / "fig2").mkdir()
    (tmp_path / "fig2" / "x.png").write_bytes(PNG)
    page = render(tmp_path, [fake_record("fig2"), fake_record("missing")])
    audit = _Audit()
    audit.feed(page)
    assert audit.stack == []
    assert audit.loaded == []
    assert not {"script", "link", "iframe", "b"} & set(audit.tags)
    assert "http" not in page
    assert not re.search(r"url\(|@import", page)
    assert len(audit.images) == 1
    assert audit.images[0]["alt"] == 'an "alternative"'
    assert "missing/x.png is missing" in page
    for words in ("holds in part", "does not hold", "undecided", "ours"):
        assert words in page
    assert "ours is &lt;lower&gt;" in page


def test_report_of_nothing(tmp_path):
    path = write_report(tmp_path, {})
    assert "Summary of claims" in path.read_text(encoding="utf-8")
    assert not list(Path(tmp_path).glob("*.new"))


def test_record_is_plain_json(tmp_path):
    path = fake_record("fig2").save(tmp_path)
    assert json.loads(path.read_text(encoding="utf-8"))["id"] == "fig2"


def test_figure_1a(tmp_path):
    context = Context("quick", 0, None, tmp_path)
    record = runner.experiment_of("fig1a").run(context)
    for end in ("png", "svg", "csv"):
        assert (tmp_path / f"fig1a.{end}").stat().st_size > 0
    counts = [line.split(",") for line in (tmp_path / "fig1a.csv").read_text().splitlines()[1:]]
    total = sum(int(row[2]) for row in counts)
    assert total == 208_085
    # 22 % of offers pay: five standard deviations, error probability 6e-7.
    assert abs(int(counts[0][2]) / total - 0.78) < 5 * (0.22 * 0.78 / total) ** 0.5
    assert record.verdicts == ()
    assert len(record.tables[0].rows) == 5


def test_the_process_that_compiles_ahead_ends_with_the_run(tmp_path, monkeypatch):
    sign = tmp_path / "started"
    code = f"import pathlib, time; pathlib.Path({str(sign)!r}).touch(); time.sleep(600)"
    monkeypatch.setattr(runner, "COMPILE_AHEAD", (sys.executable, "-c", code))
    monkeypatch.setattr(runner.os, "cpu_count", lambda: 4)
    started = []
    real = runner.subprocess.Popen

    def popen(*args, **kwargs):
        started.append(real(*args, **kwargs))
        return started[-1]

    monkeypatch.setattr(runner.subprocess, "Popen", popen)
    with runner.compiling_ahead([Figure2, Figure3]):
        for _ in range(600):
            if sign.exists():
                break
            time.sleep(0.05)
        assert sign.exists()
        assert started[0].poll() is None
    assert started[0].poll() is not None
    with runner.compiling_ahead([Figure3, Figure2]):
        pass
    assert len(started) == 1
