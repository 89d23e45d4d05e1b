"""Figures: fixed styles, panels that cope with odd results, files that repeat byte by byte."""

import itertools

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from zib import InvalidParameterError
from zib.core.spec import KNOWN, Spec, saved_name
from zib.report import (
    Style,
    declared_styles,
    legend_below,
    paper_style,
    regret_panel,
    save_figure,
    small_print,
    style_of,
)
from zib.sim import Results

mpl.use("agg")
import matplotlib.pyplot as plt

PROVENANCE = {"zib": "0.1.0", "seed": 3, "plan_hash": "0123456789abcdef", "numpy": "2.4"}


def results(labels=("ZI-UCB", "UCB1"), replications=5, horizon=1000):
    rounds = np.arange(10, horizon + 1, 10)
    rng = np.random.default_rng(1)
    slopes = rng.uniform(0.5, 1.5, (len(labels), replications, 1))
    regret = slopes * np.sqrt(rounds)
    return Results(labels, rounds, regret, regret, np.zeros((2, 2, 2), dtype=np.int64), {})


# What is drawn together in the paper's figures, and policies in wrappers beside them.
TOGETHER = (
    (
        "ZI-UCB printed", "ZI-UCB", "ZI-TS", "ZI-TS exponential", "ZI-TS stable", "ZI-KL-UCB",
        "ZI-IMED", "ZI posterior", "ZI adaptive", "UCB true size (strong)", "UCB component size",
        "UCB variance size", "UCB estimated size", "MOTS", "UCB1", "kl-UCB", "Normal TS",
        "ε-greedy", "asymptotic bound",
    ),
    (
        "ZI-UCB printed", "ZI-UCB", "ZI-TS printed", "ZI-TS", "Joint-UCB", "Laplace-TS",
        "naive UCB", "naive TS", "integrated UCB", "integrated TS",
    ),
    (
        "ZI posterior", "ZI posterior, discounted", "ZI posterior, window", "ZI-IMED",
        "ZI-IMED, discounted", "ZI-IMED, window", "UCB1", "UCB1, discounted",
    ),
)  # fmt: skip


@pytest.mark.parametrize("labels", TOGETHER, ids=["multi-armed", "contextual", "drift"])
def test_curves_of_one_figure_look_different(labels):
    styles = [style_of(label) for label in labels]
    assert len({style[:3] for style in styles}) == len(styles)
    # without colour, marker and line still tell them apart
    assert len({style[1:3] for style in styles}) == len(styles)


def test_strong_colours_are_apart():
    def rgb(color):
        return np.array(mpl.colors.to_rgb(color))

    strong = [s for s in declared_styles().values() if s.width >= 1.8 and s.marker]
    assert len(strong) > 20
    for a, b in itertools.combinations({s.color for s in strong}, 2):
        assert np.abs(rgb(a) - rgb(b)).sum() > 0.2, (a, b)


def test_a_policy_brings_its_style_along():
    class Mine(Spec):
        label = "mine"
        looks = {"mine": "#123456 D dashed thin"}

    try:
        assert style_of("mine") == Style("#123456", "D", (0, (5, 2)), 1.3, 0.9)
        wrapped = style_of("mine, last 100")
        assert wrapped.color == "#123456"
        assert (wrapped.marker, wrapped.line) != ("D", (0, (5, 2)))
    finally:
        KNOWN.pop(saved_name(Mine))
    assert style_of("mine").color != "#123456"


def test_unknown_labels_get_a_stable_style():
    assert style_of("mine") == style_of("mine")
    assert style_of("mine").color.startswith("#")


def test_panel_draws_mean_and_band():
    fig, ax = plt.subplots()
    result = results()
    regret_panel(ax, result, references={"asymptotic bound": np.log(result.checkpoints)})
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert set(lines) == {"ZI-UCB", "UCB1", "asymptotic bound"}
    np.testing.assert_allclose(lines["UCB1"].get_ydata(), result.mean()[1])
    assert lines["ZI-UCB"].get_color() == style_of("ZI-UCB").color
    bands = [band.get_paths()[0].vertices[:, 1] for band in ax.collections]
    assert len(bands) == 2
    assert bands[1].max() == result.interval()[1][1].max()
    plt.close(fig)


@pytest.mark.parametrize("log", [False, True])
def test_panel_copes_with_odd_results(log):
    result = results(replications=3)
    result.regret[0, 1] = np.nan  # an interrupted replication
    result.regret[1, :, :3] = 0.0
    single = results(replications=1)
    nothing = results()
    nothing.regret[0] = np.nan
    for odd in (result, single, nothing):
        fig, ax = plt.subplots()
        regret_panel(ax, odd, log=log)
        fig.canvas.draw()
        for line in ax.get_lines():
            assert np.isfinite(line.get_ydata()).all()
        plt.close(fig)


def test_panel_selects_and_refuses_labels():
    fig, ax = plt.subplots()
    regret_panel(ax, results(), labels=["UCB1"])
    assert [line.get_label() for line in ax.get_lines()] == ["UCB1"]
    with pytest.raises(InvalidParameterError, match="`labels` must be among 'ZI-UCB', 'UCB1'"):
        regret_panel(ax, results(), labels=["UCB2"])
    plt.close(fig)


def test_legend_names_every_curve_once():
    fig, axes = plt.subplots(1, 2)
    for ax in axes:
        regret_panel(ax, results(("ZI-UCB", "UCB1", "mine")))
    groups = {"ours": ("ZI-UCB", "ZI-TS"), "theirs": ("UCB1",)}
    legend_below(fig, axes, groups)
    texts = [t.get_text() for legend in fig.legends for t in legend.get_texts()]
    assert sorted(texts) == ["UCB1", "ZI-UCB", "mine"]
    titles = [legend.get_title().get_text() for legend in fig.legends]
    assert titles == ["ours", "theirs", "others"]
    plt.close(fig)


def test_saved_files_repeat_byte_by_byte(tmp_path):
    contents = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        with paper_style():
            fig = Figure()
            regret_panel(fig.subplots(), results())
            files = save_figure(fig, folder, "x", pd.DataFrame({"a": [1.0]}), PROVENANCE)
        contents.append([path.read_bytes() for path in files])
    assert contents[0] == contents[1]
    assert contents[0][2] == b"a\n1\n"


def test_small_print_names_plan_version_and_seed(tmp_path):
    assert small_print(PROVENANCE) == "zib 0.1.0 · plan 0123456789ab · seed 3 · numpy 2.4"
    assert small_print({}) == ""


def test_style_leaves_the_users_settings_alone():
    before = mpl.rcParams["axes.grid"]
    with paper_style():
        assert mpl.rcParams["axes.grid"] is True
    assert mpl.rcParams["axes.grid"] == before
