"""Studies that run: the numbers are those of `zib.simulate`, kept, resumed, shown."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import zib
from zib import studies
from zib.studies import report

TWO = """
name = "Two <environments> & more"
about = "Some words."
horizon = 300
replications = 6
seed = 4
checkpoints = 20

[environments."a/b <x>"]
kind = "GaussianMAB"
means = [1.0, 2.0, 1.5]
probs = [0.3, 0.4, 0.1]
sigma = 0.5

[environments."a b x"]
id = "paper-mab-gaussian-p30-v1"

[policies."ZI-TS"]
kind = "ZITS"
sigma = 0.5

[policies."UCB1 <scaled>"]
kind = "UCB1"
scale = 3.0

[run]
store = "store"
workers = 2
"""


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(TWO, encoding="utf-8")
    return path


def played(file: Path, **changes) -> studies.Outcome:
    return studies.run(studies.read(file, changes))


# ------------------------------------------------------------------------------------------ running


def test_numbers_are_those_of_simulate(file):
    outcome = played(file)
    assert not outcome.interrupted
    policies = {
        "ZI-TS": zib.mab.ZITS(horizon=300, sigma=0.5),
        "UCB1 <scaled>": zib.mab.UCB1(scale=3.0),
    }
    environments = {
        "a/b <x>": zib.env.GaussianMAB([1.0, 2.0, 1.5], [0.3, 0.4, 0.1], 0.5),
        "a b x": zib.env.make("paper-mab-gaussian-p30-v1"),
    }
    for label, env in environments.items():
        expected = zib.simulate(
            policies, env, horizon=300, replications=6, seed=4, checkpoints=20, backend="serial",
            progress=False,
        )  # fmt: skip
        np.testing.assert_array_equal(outcome[label].regret, expected.regret)
        np.testing.assert_array_equal(outcome[label].pulls, expected.pulls)
        assert outcome[label].labels == expected.labels


def test_progress_counts_up_to_the_end(file):
    told: list[tuple[str, int, int]] = []
    studies.run(studies.read(file), lambda *step: told.append(step))
    assert told[0] == ("a/b <x>", 0, 2 * 2 * 6 * 20)
    assert told[-1] == ("a b x", 480, 480)
    assert {label for label, _, _ in told} == {"a/b <x>", "a b x"}
    assert all(done <= total for _, done, total in told)


def test_a_second_run_reads_the_store(file, monkeypatch):
    first = played(file)
    found = studies.estimate(studies.read(file))
    assert (found.stored, found.blocks) == (4, 4)
    assert found.computing == found.store_bytes == 0
    more = studies.estimate(studies.read(file, {"seed": 5}))
    assert (more.stored, more.blocks) == (0, 4)

    def refuse(*_):
        raise AssertionError("something was played again")

    monkeypatch.setattr(zib.sim.Store, "put", refuse)
    second = played(file, run={"backend": "serial"})
    for one, two in zip(first.played, second.played):
        np.testing.assert_array_equal(one.result.regret, two.result.regret)


def test_an_interruption_keeps_the_environments_that_are_finished(file, monkeypatch):
    simulate = zib.simulate

    def stop(policies, env, **settings):
        if isinstance(env, zib.env.RandomMAB):
            raise KeyboardInterrupt
        return simulate(policies, env, **settings)

    monkeypatch.setattr(zib, "simulate", stop)
    outcome = played(file)
    assert outcome.interrupted
    assert [each.case.label for each in outcome.played] == ["a/b <x>"]
    page = studies.write(outcome).read_text(encoding="utf-8")
    assert "1 of 2 environments are not finished" in page


def test_an_interruption_in_mid_environment_shows_what_there_is(file, monkeypatch):
    simulate = zib.simulate

    def cut_off(*args, **settings):
        result = simulate(*args, **settings)
        result.regret[0, 2:] = np.nan
        result.regret[1] = np.nan
        return result

    monkeypatch.setattr(zib, "simulate", cut_off)
    outcome = played(file, run={"store": False})
    assert outcome.interrupted
    (only,) = outcome.played
    _, rows = report.final_rows(only.result)
    assert [row[0] for row in rows] == ["ZI-TS", "UCB1 <scaled>"]
    assert [row[-1] for row in rows] == ["2", "0"]
    assert rows[1][1] == rows[1][2] == "–"
    studies.write(outcome)


@pytest.mark.slow
def test_contextual_studies_run(tmp_path):
    (tmp_path / "c.toml").write_text("""
horizon = 200
replications = 2
checkpoints = 5
[environments.few]
kind = "RandomContextual"
n_arms = 4
dimension = 3
sparsity = 2
[policies."naive TS"]
kind = "Naive"
kind_ = "ts"
sigma = 1.0
[policies."naive UCB"]
kind = "Naive"
sigma = 1.0
[run]
store = false
""")
    study = studies.read(tmp_path / "c.toml")
    outcome = studies.run(study)
    expected = zib.simulate(
        study.cases[0].policies, zib.env.RandomContextual(n_arms=4, dimension=3, sparsity=2),
        horizon=200, replications=2, checkpoints=5, progress=False,
    )  # fmt: skip
    np.testing.assert_array_equal(outcome["few"].regret, expected.regret)
    assert studies.write(outcome).exists()


def test_summaries_make_the_same_report(file):
    runs = played(file)
    short = played(file, run={"keep": "summary"})
    for label in ("a/b <x>", "a b x"):
        np.testing.assert_allclose(short[label].mean(), runs[label].mean(), rtol=1e-12)
    page = studies.write(short).read_text(encoding="utf-8")
    one, two = report.final_rows(runs["a b x"]), report.final_rows(short["a b x"])
    assert one == two
    assert "a-b-x.npz" in page
    frame = pd.read_csv(file.parent / "results" / "study" / "regret.csv")
    assert len(frame) == 2 * 2 * 20
    assert frame["replications"].eq(6).all()


# ------------------------------------------------------------------------------------------- report


class Links(HTMLParser):
    """Collects what a page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if name in ("src", "href")]


def test_the_report_is_whole_and_refers_to_nothing_outside(file):
    outcome = played(file)
    page = studies.write(outcome)
    assert page == file.parent / "results" / "study" / "report.html"
    text = page.read_text(encoding="utf-8")
    links = Links()
    links.feed(text)
    for target in links.found:
        assert target.startswith("data:image/png;base64,") or (page.parent / target).exists()
    names = {path.name for path in page.parent.iterdir()}
    assert names == {
        "report.html", "report.toml", "final.csv", "a-b-x.npz", "a-b-x-2.npz",
        "regret.png", "regret.svg", "regret.csv",
        "regret-log.png", "regret-log.svg", "regret-log.csv",
    }  # fmt: skip
    assert (page.parent / "report.toml").read_text(encoding="utf-8") == TWO
    shown = ("Two &lt;environments&gt; &amp; more", "Some words.", outcome.study.hash)
    for part in (*shown, "a/b &lt;x&gt;", "UCB1 &lt;scaled&gt;", "ZITS(horizon=300.0, sigma=0.5"):
        assert part in text
    assert "<scaled>" not in text
    for each in outcome.played:
        assert each.result.provenance["plan_hash"] in text
    again = zib.Results.load(page.parent / "a-b-x-2.npz")
    np.testing.assert_array_equal(again.regret, outcome["a b x"].regret)


def test_the_report_says_what_was_replaced(file):
    outcome = played(file, seed=11, replications=1)
    page = studies.write(outcome).read_text(encoding="utf-8")
    assert "Run with other settings: seed = 11, replications = 1" in page
    assert "One replication does not show how much of the difference is chance" in page
    assert "Run with other settings" not in studies.write(played(file)).read_text(encoding="utf-8")


def test_tables_hold_the_numbers(file):
    outcome = played(file)
    folder = studies.write(outcome).parent
    final = pd.read_csv(folder / "final.csv").set_index(["environment", "policy"])
    curve = pd.read_csv(folder / "regret.csv")
    for label in ("a/b <x>", "a b x"):
        result = outcome[label]
        mean = result.mean()[:, -1]
        best = result.labels[int(np.argmin(mean))]
        for i, policy in enumerate(result.labels):
            row = final.loc[(label, policy)]
            assert row["regret"] == pytest.approx(mean[i])
            apart = result.difference(policy, best).final
            expected = [
                row["above the best"],
                *row[["above the best, low", "above the best, high"]],
            ]
            np.testing.assert_allclose(expected, apart, rtol=1e-8, atol=1e-12)
            last = curve[(curve["environment"] == label) & (curve["policy"] == policy)].iloc[-1]
            assert (last["round"], last["regret"]) == (300, pytest.approx(mean[i]))


def test_no_two_curves_look_alike():
    from zib.report import style_of, styles_of

    labels = ["ZI-TS", *(f"policy {i}" for i in range(40))]
    assert len(set(map(style_of, labels))) < len(labels)
    styles = styles_of(labels)
    assert len({style[:3] for style in styles.values()}) == len(labels)
    assert styles["ZI-TS"] == style_of("ZI-TS")
    few = styles_of([f"policy {i}" for i in range(6)])
    assert len({style.color for style in few.values()}) == 6


def made(regret: list[list[float]]) -> zib.Results:
    """Return results with these final regrets, policy by policy."""
    final = np.array(regret)[:, :, None]
    labels = [f"p{i}" for i in range(len(regret))]
    pulls = np.zeros((*final.shape[:2], 1), dtype=np.int64)
    return zib.Results(labels, np.array([10]), final, -final, pulls, {})


def test_words_follow_the_paired_differences():
    near = report.in_words(made([[9.0, 1.0, 5.0], [1.0, 9.0, 4.0], [50.0, 51.0, 50.0]]))
    assert near.startswith("p1 has the lowest regret, 4.67 [")
    assert near.endswith("as good: p0.")
    clear = report.in_words(made([[9.0, 11.0, 10.0], [1.0, 3.0, 2.1]]))
    assert re.search(r"The next, p0, has 7\.97 \[7\.82, 8\.11\] more\.$", clear)
    assert "One replication" in report.in_words(made([[1.0], [2.0]]))
    assert report.in_words(made([[1.0, 2.0]])).startswith("p0 has the lowest regret, 1.50 [")


# --------------------------------------------------------------------------------------- estimating


class Clock:
    """Time passes only while something is played, by a known cost."""

    def __init__(self, fixed: float, per_round: float) -> None:
        self.now, self.fixed, self.per_round, self.played = 0.0, fixed, per_round, []

    def simulate(self, policies, env, *, horizon, replications, **_):
        self.played.append((horizon, replications))
        self.now += self.fixed + self.per_round * horizon * replications

    def perf_counter(self) -> float:
        return self.now


@pytest.mark.parametrize(("horizon", "per_round"), [(1_000_000, 2e-6), (100, 1e-5), (700, 1e-6)])
def test_calibration_extrapolates(file, monkeypatch, horizon, per_round):
    clock = Clock(0.003, per_round)
    monkeypatch.setattr("zib.studies.play.time", clock)
    monkeypatch.setattr(zib, "simulate", clock.simulate)
    study = studies.read(file, {"horizon": horizon, "replications": 5_000})
    found = studies.estimate(study)
    cost = per_round * horizon * 5_000
    for line in found.lines:
        assert line.seconds == pytest.approx(cost, rel=0.02)
        assert line.per_round == pytest.approx(per_round, rel=0.02)
    assert found.computing == pytest.approx(4 * cost, rel=0.02)
    assert found.seconds == pytest.approx(found.computing / 2)
    assert clock.now < 4 * 2.0  # calibrating takes a moment, whatever the study takes
    assert found.blocks == sum(line.blocks for line in found.lines) > 4
    numbers_kept = 4 * 5_000 * (2 * 20 + 3) * 8
    assert found.memory > numbers_kept
    assert found.store_bytes > numbers_kept


def test_a_summary_needs_no_more_memory_for_more_replications(file, monkeypatch):
    clock = Clock(0.003, 1e-5)
    monkeypatch.setattr("zib.studies.play.time", clock)
    monkeypatch.setattr(zib, "simulate", clock.simulate)
    monkeypatch.setattr("zib.studies.play._memory_now", lambda: 0)

    def memory(keep: str, replications: int) -> int:
        changes = {"replications": replications, "run": {"keep": keep, "store": False}}
        return studies.estimate(studies.read(file, changes)).memory

    assert memory("runs", 200_000) == 100 * memory("runs", 2_000)
    assert memory("summary", 200_000) < 3 * memory("summary", 2_000)
    assert memory("summary", 200_000) < memory("runs", 200_000) / 20


def test_a_dry_run_of_real_policies(file):
    told = []
    study = studies.read(file, {"run": {"store": False, "backend": "serial"}})
    found = studies.estimate(study, lambda *step: told.append(step))
    assert [line.policy for line in found.lines] == ["ZI-TS", "UCB1 <scaled>"] * 2
    assert all(0 < line.per_round < 1e-3 for line in found.lines)
    assert (found.workers, found.stored, found.store_bytes) == (1, 0, 0)
    assert told[0] == ("ZI-TS in a/b <x>", 0, 4)
