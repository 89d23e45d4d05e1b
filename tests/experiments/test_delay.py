"""The experiment on late rewards: verdicts from made-up curves, and a short run."""

from __future__ import annotations

import pytest
from tests.experiments.made import panel, quick, small

from zib.experiments import delay
from zib.experiments.delay import CELLS, Delay, Ratio, way
from zib.experiments.harness import Scaled
from zib.experiments.record import Context

GOOD = {
    delay.NO_DELAY: 1.0,
    delay.ESTIMATED: 1.1,
    delay.KNOWN: 1.09,
    delay.ZERO: 1.5,
    delay.AT_ONCE: 2.0,
    delay.WAIT: 1.7,
}
BAD = GOOD | {delay.ESTIMATED: 2.5}


def cells(*policies, factors=GOOD):
    return [
        panel(
            cell.name,
            cell.env,
            {
                way(policy, how): (lambda t, f=f: 0.01 * f * t)
                for policy in policies
                for how, f in factors.items()
            },
        )
        for cell in CELLS
    ]


def test_every_claim_holds_where_the_curves_say_so(tmp_path):
    found = list(Delay(quick(tmp_path)).claims(cells(delay.ADAPTIVE, delay.INDEX)))
    assert [v.status for v in found] == ["holds"] * 5
    assert "(1.10 times the regret of no delay)" in found[0].words


def test_every_claim_fails_where_the_curves_say_the_opposite(tmp_path):
    found = Delay(quick(tmp_path)).claims(cells(delay.ADAPTIVE, factors=BAD))
    assert {v.status for v in found} == {"fails"}


def test_a_cell_that_misses_is_named(tmp_path):
    panels = cells(delay.ADAPTIVE)[1:] + cells(delay.ADAPTIVE, factors=BAD)[:1]
    target = next(iter(Delay(quick(tmp_path)).claims(panels)))
    assert target.status == "partly"
    assert "does not hold for exponential, window T/8" in target.words


def test_ratios_are_paired():
    ratio = Ratio.of(cells(delay.ADAPTIVE)[0].result, delay.ADAPTIVE, delay.ZERO)
    assert ratio == pytest.approx((1.5, 1.5, 1.5))  # the noise is common to all ways


def test_who_plays_where(tmp_path):
    assert len(CELLS) == 14
    assert {cell.window for cell in CELLS} == {2500, 6666}
    for scale, policies in (("quick", 1), ("paper", 3)):
        for each in Delay(Context(scale, 0, 1, tmp_path)).panels():
            assert len(each.policies) == 6 * policies
    for cell in CELLS:
        assert max(cell.env.first_rounds) == (delay.ADDED if cell.added else 0)


@pytest.mark.slow
def test_a_short_run(tmp_path, monkeypatch):
    monkeypatch.setattr(delay, "HORIZON", 300)
    monkeypatch.setattr(
        delay, "CELLS", (CELLS[0]._replace(window=40), CELLS[-1]._replace(window=50))
    )
    monkeypatch.setattr(delay, "ADDED", 150)
    record = small(Delay, replications=Scaled(quick=2, paper=2)).run(quick(tmp_path))
    assert len(record.tables[0].rows) == 2
    assert len(record.verdicts) == 4
    for end in ("png", "svg", "csv"):
        assert (tmp_path / f"delay.{end}").stat().st_size > 0
