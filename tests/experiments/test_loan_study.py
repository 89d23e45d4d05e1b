"""The loan study: records, power, mirror statistics, verdicts, and each item run small."""

import math
from functools import partial

import numpy as np
import pytest
from scipy import stats
from tests.experiments.made import panel, quick, results, small

import zib
from zib.cases.loan import LoanPricing, synthetic_loan_records
from zib.experiments import fig4, figS4, figS5, loan_study, tabS1
from zib.experiments.contextual_study import GROUPS
from zib.experiments.fig4 import Figure4, Market
from zib.experiments.harness import Scaled
from zib.experiments.loan_study import Book
from zib.experiments.record import Context
from zib.logs import load_frame

LABELS = tuple(label for group in GROUPS.values() for label in group)


@pytest.fixture(scope="module")
def book():
    records = synthetic_loan_records(4000, seed=2)
    return Book("synthetic", records, loan_study.default_cuts(records))


@pytest.fixture(scope="module")
def market(book):
    return book.market(0)


@pytest.fixture
def small_books(monkeypatch, book):
    """Let every item use few records and no file."""
    monkeypatch.delenv(loan_study.FOLDER_VARIABLE, raising=False)
    monkeypatch.setattr(loan_study, "synthetic_book", lambda seed: book)
    # the tests write a made-up table, whose checksum is another
    monkeypatch.setattr(loan_study, "load_frame", partial(load_frame, verify=False))


def experiment_frame(n=3000):
    """Return a made-up table with the columns of the open experiment."""
    import pandas as pd

    rng = np.random.default_rng(0)
    taken = (rng.random(n) < 0.2).astype(int)
    rate = rng.uniform(3.25, 11.75, n)
    return pd.DataFrame(
        {
            "risk": "HIGH",
            "wave": rng.integers(1, 4, n),
            "offer4": rate,
            "final4": rate,
            "normrate_less": 1,
            "tookup": taken,
            "grossinterest": taken * rate * rng.exponential(40.0, n),
            "appscore": rng.normal(30, 8, n),
            "itcscore": rng.normal(600, 50, n),
            "itczero": (rng.random(n) < 0.1).astype(int),
            "lastamount": rng.uniform(200, 3000, n),
            "dormancy": rng.integers(1, 24, n),
        }
    )


# -------------------------------------------------------------------------------- shared pieces


def test_rounds_to_tell_apart():
    # The power of the two-sided z test with that many rounds, half each, is 80 %.
    gap, first, second = 0.04, 2.4, 1.3
    rounds = loan_study.rounds_to_tell_apart(gap, first, second)
    error = math.sqrt(2 * (first + second) / rounds)
    shift = gap / error
    power = stats.norm.sf(1.959964 - shift) + stats.norm.cdf(-1.959964 - shift)
    assert power == pytest.approx(0.8, abs=1e-4)
    assert loan_study.rounds_to_tell_apart(0.0, 1.0, 1.0) == math.inf


def test_class_table_and_power_note(book, market):
    table = loan_study.class_table(book, market)
    assert [row[0] for row in table.rows] == list(market.classes)
    assert [row[-1] for row in table.rows].count("best") == 1
    found = market.summary()
    best = int(found.mean.argmax())
    assert table.rows[best][-1] == "best"
    assert table.rows[0][3] == f"{100 * found.acceptance[0]:.1f} %"
    note = loan_study.power_note(book, market, 5000)
    order = np.argsort(found.mean)
    assert f"'{market.classes[order[-1]]}' and '{market.classes[order[-2]]}'" in note
    assert "their own rewards cannot tell" in note
    assert "cannot tell" not in loan_study.power_note(book, market, 10**9)


def test_records_that_are_there(monkeypatch, tmp_path, small_books):
    context = Context("quick", 0, 1, tmp_path)
    (only,) = loan_study.books(context)
    assert only.name == "synthetic"
    assert loan_study.FOLDER_VARIABLE in loan_study.record_notes([only])[-1]
    monkeypatch.setenv(loan_study.FOLDER_VARIABLE, str(tmp_path))
    assert len(loan_study.books(context)) == 1  # the folder is empty
    path = tmp_path / loan_study.KZ_FILE
    path.parent.mkdir()
    experiment_frame().to_stata(path, write_index=False)
    found = loan_study.books(context)
    assert [b.name for b in found] == ["synthetic", "Karlan–Zinman"]
    assert found[1].records.n_records == 3000
    assert len(loan_study.record_notes(found)) == 1
    sizes = np.diff([0, *np.searchsorted(np.sort(found[1].records.price), found[1].cuts), 3000])
    assert np.ptp(sizes) <= 2


# --------------------------------------------------------------------------------------- figure 4


def test_policies_know_what_they_should(market):
    specs = fig4.policies(market, 5000)
    assert set(specs) == set(LABELS)
    bound = fig4.bound_of(market)
    assert max(market.feature_norms) < bound < 1.1 * max(market.feature_norms) + 0.1
    for label in ("ZI-UCB", "ZI-TS", "ZI-UCB printed", "ZI-TS printed"):
        known = specs[label].parameters()
        assert (known["bound"], known["sigma"], known["magnitude"]) == (bound, 1.0, "huber")
        assert (known["horizon"], known["scale"]) == (5000.0, 1.0)
    factors = {"ZI-UCB": 0.1, "naive TS": 0.03, "integrated UCB": 0.3}
    tuned = fig4.policies(market, 5000, factors)
    assert set(tuned) == set(LABELS) - {"ZI-UCB printed", "ZI-TS printed"}
    for label in fig4.TUNED:
        assert tuned[label].parameters()["scale"] == factors.get(label, 1.0)
    assert tuned["Joint-UCB"] == specs["Joint-UCB"]


def test_a_best_class_at_the_end_is_pointed_out(book, market):
    # the best class is not the dearest here
    assert fig4.dearest_is_best(Market(book, market)) == []
    rising = LoanPricing(
        **(market.parameters() | {"theta": [0.0, *market.theta[1:]], "contexts": [[0.0] * 5]})
    )
    (note,) = fig4.dearest_is_best(Market(book, rising))
    assert "dearest class is best for 100 % of the customers" in note


def test_a_policy_that_hardly_explores_is_pointed_out():
    usual = dict.fromkeys(fig4.TUNED, 0.1)
    assert "explores" not in fig4.factor_table({"synthetic": usual}).note
    assert "explores" in fig4.factor_table({"synthetic": usual | {"ZI-TS": 0.003}}).note


AS_CLAIMED = {
    **dict.fromkeys(("ZI-UCB printed", "ZI-UCB", "ZI-TS printed", "ZI-TS"), np.sqrt),
    **dict.fromkeys(("naive UCB", "naive TS"), lambda t: 1.2 * np.sqrt(t)),
    **dict.fromkeys(("integrated UCB", "integrated TS"), lambda t: 0.1 * t),
    **dict.fromkeys(("Joint-UCB", "Laplace-TS"), lambda t: 0.5 * np.sqrt(t)),
}


def test_claims_hold_where_the_curves_say_so(market):
    def claims(curves):
        return list(
            Figure4(None).claims([panel("synthetic T = 5000", market, curves, replications=1000)])
        )

    found = claims(AS_CLAIMED)
    assert {v.status for v in found} == {"holds"}
    assert len(found) == 8
    wrong = {
        **dict.fromkeys(LABELS, lambda t: 0.1 * t),
        **dict.fromkeys(("integrated UCB", "integrated TS"), np.sqrt),
        **dict.fromkeys(("naive UCB", "naive TS"), lambda t: 0.2 * t),
        **dict.fromkeys(("Joint-UCB", "Laplace-TS"), lambda t: 0.5 * t),
    }
    # naive is above ZI here, so "lowest" holds against these two only
    assert {v.status for v in claims(wrong)} == {"fails", "partly"}


def test_the_best_factor_is_found(monkeypatch, tmp_path, book, market):
    def simulate(policies, env, *, horizon, replications, seed, checkpoints, **rest):
        assert seed == 5 + fig4.OTHER_SEED
        factors = {label: spec.parameters()["scale"] for label, spec in policies.items()}
        curves = {
            label: lambda t, f=factor: t * (1 + abs(math.log(f / 0.1)))
            for label, factor in factors.items()
        }
        return results(curves, checkpoints, replications)

    monkeypatch.setattr(zib, "simulate", simulate)
    chosen = Figure4(quick(tmp_path, 5)).best_factors(Market(book, market))
    assert chosen == dict.fromkeys(fig4.TUNED, 0.1)


@pytest.fixture
def quickly(monkeypatch):
    """Replace the simulation by curves; the number of calls until it is interrupted."""
    calls, stop_after = [], [99]

    def simulate(policies, env, *, horizon, replications, checkpoints, **rest):
        calls.append(horizon)
        curves = {label: AS_CLAIMED[label.split(" ×")[0]] for label in policies}
        result = results(curves, checkpoints, replications)
        if len(calls) > stop_after[0]:
            result.regret[0, 0] = np.nan
        return result

    monkeypatch.setattr(zib, "simulate", simulate)
    return calls, stop_after


def test_interrupted_figure_keeps_finished_panels(tmp_path, small_books, quickly):
    calls, stop_after = quickly
    stop_after[0] = 1
    record = Figure4.run(quick(tmp_path))
    assert record.interrupted
    assert record.notes[0] == "Interrupted: 2 of 3 panels are missing."
    assert calls == [5000, 20_000]
    stop_after[0] = 0
    with pytest.raises(KeyboardInterrupt):
        Figure4.run(quick(tmp_path))


def test_paper_scale_and_second_records(tmp_path, small_books, quickly, monkeypatch):
    path = tmp_path / loan_study.KZ_FILE
    path.parent.mkdir()
    experiment_frame().to_stata(path, write_index=False)
    monkeypatch.setenv(loan_study.FOLDER_VARIABLE, str(tmp_path))
    record = Figure4.run(Context("paper", 0, 1, tmp_path / "out"))
    assert quickly[0] == [5000, 50_000, 50_000, 50_000] * 2
    assert record.tables[-1].columns == ("policy", "synthetic", "Karlan–Zinman")
    assert "N = 30 (the paper does not say)" in [s.value for s in record.settings]
    assert len([n for n in record.notes if "To tell them apart" in n]) == 2


@pytest.mark.slow
def test_figure_with_every_policy(tmp_path, small_books, monkeypatch):
    monkeypatch.setattr(fig4, "FACTORS", (1.0, 0.1))
    figure = small(
        Figure4,
        horizon=100,
        longer=150,
        pilot_horizon=100,
        replications=Scaled(quick=2, paper=2),
    )
    record = figure.run(quick(tmp_path, 3))
    assert not record.interrupted
    names = [table.title for table in record.tables]
    assert names[1].startswith("synthetic T = 100: regret at round 100")
    assert {row[0] for row in record.tables[1].rows} == set(LABELS)
    assert {row[1] for row in record.tables[-1].rows} <= {"1", "0.1"}
    assert {s.source for s in record.settings} == {"paper", "ours", "fix"}
    for end in ("png", "svg", "csv"):
        assert (tmp_path / f"fig4.{end}").stat().st_size > 0
    lines = (tmp_path / "fig4.csv").read_text().splitlines()
    assert lines[0] == "records,horizon,widths,policy,round,regret,low,high,replications"
    assert all(0 <= float(line.split(",")[5]) < 150 for line in lines[1:])


# ------------------------------------------------------------------------------ figures S4 and S5


def test_figure_s4(tmp_path, small_books, book):
    record = figS4.FigureS4.run(quick(tmp_path))
    shares = [float(row[4].rstrip(" %")) for row in record.tables[0].rows]
    np.testing.assert_allclose(shares, [25, 50, 16.5, 7.25, 1.25], atol=0.05)
    # so few records miss the smallest and the largest published price
    assert record.verdicts[0].status == "fails"
    assert "smallest, largest" in record.verdicts[0].words
    full = Book("synthetic", synthetic_loan_records(), book.cuts)
    assert figS4.published_quantiles(full).status == "holds"
    import pandas as pd

    table = pd.read_csv(tmp_path / "figS4.csv")
    width = np.diff(table["price"])[0]
    assert table["density"].sum() * width == pytest.approx(0.9985, abs=0.001)
    assert list(dict.fromkeys(table["class"])) == list(zib.cases.loan.LoanMarket().classes)


def test_figure_s5(tmp_path, small_books, book):
    import statsmodels.api as sm

    record = figS5.FigureS5.run(quick(tmp_path, 7))
    points = figS5.points(book.records, 7)
    assert [p.lam for p in points][::13] == [0.05, 0.7, 1.35, 2.0]
    assert record.verdicts[1].status == "fails"  # the profit is made without the context
    # the F test is that of statsmodels
    i = 12
    noise = zib.core.rng.stream(7, zib.core.rng.Role.INSTANCE, 2, i).standard_exponential(4000) - 1
    x = loan_models_design(book)
    fit = sm.OLS(book.records.price + points[i].lam * noise, x).fit()
    test = fit.f_test(np.eye(7)[2:])
    assert points[i].p_value == pytest.approx(float(test.pvalue), rel=1e-6)
    assert points[i].price == pytest.approx(fit.params[0], rel=1e-9)
    assert points[i].norm == pytest.approx(np.abs(fit.params[2:]).sum(), rel=1e-6)
    # sampling error alone: E|N(0, s²)| = s√(2/π) for each effect
    expected = (fit.bse[2:] / math.sqrt(fit.scale)).sum() * math.sqrt(2 / math.pi)
    assert figS5.error_alone(book.records) == pytest.approx(expected, rel=1e-6)


def loan_models_design(book):
    r = book.records
    return np.column_stack([r.price, np.ones(r.n_records), r.standardised])


def test_s5_verdicts_can_go_both_ways():
    near = [figS5.Point(1.0, 1.01, 0.01, 0.5)]
    far = [figS5.Point(1.0, 1.2, 0.01, 1e-6)]
    assert figS5.approximately_one(near).status == "holds"
    assert figS5.approximately_one(far).status == "fails"
    assert figS5.context_matters(near).status == "fails"
    assert figS5.context_matters(far).status == "holds"


# --------------------------------------------------------------------------------------- table S1


def test_bases_span_what_they_should(book):
    x = book.records.standardised
    powers = tabS1.polynomial(x, 3)
    assert powers.shape == (4000, 15)
    np.testing.assert_allclose(powers[:, 2], x[:, 0] ** 3)
    dummy = np.column_stack([np.arange(40.0), np.arange(40) % 2])
    assert tabS1.polynomial(dummy, 3).shape == (40, 4)  # a dummy has one power
    # A cubic polynomial lies in the span of cubic splines and a constant.
    one = x[:, :1]
    basis = np.column_stack([np.ones(4000), tabS1.spline(one, 3)])
    target = 1.0 - 2.0 * one[:, 0] + 0.3 * one[:, 0] ** 3
    rest = target - basis @ np.linalg.lstsq(basis, target, rcond=None)[0]
    assert np.abs(rest).max() < 1e-9
    assert np.linalg.matrix_rank(basis) == basis.shape[1] == 7
    assert tabS1.spline(x, 3).shape[1] == 3 * 6 + 2  # prime rate and term stay as they are


def test_kernels(rng):
    x = rng.standard_normal((200, 3))
    for name in tabS1.KERNELS:
        b = tabS1.kernel(x, name, np.random.default_rng(1))
        assert b.shape == (200, tabS1.CENTRES)
        assert b.max() == pytest.approx(1.0)  # at the centre itself
        assert b.min() >= 0.0
    u = np.array([0.0, 1.0, 2.0, 3.0])
    np.testing.assert_allclose(tabS1.KERNELS["triangular"](u), [1.0, 0.5, 0.0, 0.0])
    np.testing.assert_allclose(tabS1.KERNELS["Epanechnikov"](u), [1.0, 0.75, 0.0, 0.0])
    np.testing.assert_allclose(tabS1.KERNELS["Gaussian"](u), stats.norm.pdf(u) / stats.norm.pdf(0))


def test_area_under_curve(rng):
    from sklearn.metrics import roc_auc_score

    outcome = rng.random(300) < 0.3
    score = rng.standard_normal(300).round(1) + outcome  # with ties
    expected = roc_auc_score(outcome, score)
    assert tabS1.area_under_curve(score, outcome) == pytest.approx(expected)


def test_mirror_statistics_of_pure_noise_are_symmetric(rng):
    # Columns without any effect: signs agree by chance, so the estimate is about one.
    n, d = 2000, 30
    x = np.column_stack([rng.standard_normal((n, 1)), np.ones(n), rng.standard_normal((n, d))])
    accepted = rng.random(n) < 0.3
    splits = tabS1.halves(n, 0, 12)
    cell = tabS1.evaluate("linear", 1, "logit", x, accepted, splits)
    assert 0.5 < cell.fdp.mean() < 2.0
    assert abs(cell.area.mean() - 0.5) < 0.05
    # Columns that matter: no sign is wrong.
    eta = x[:, 2:] @ np.full(d, 0.5)
    accepted = rng.random(n) < stats.logistic.cdf(eta)
    only = np.delete(x, 0, axis=1)[:, [1, 0, *range(2, d + 1)]]
    cell = tabS1.evaluate("linear", 1, "logit", only, accepted, splits)
    assert cell.fdp.max() == 0.0
    assert cell.area.mean() > 0.8


def test_halves():
    for one, two in tabS1.halves(101, 3, 5):
        assert sorted([*one, *two]) == list(range(101))
        assert one.size == 50


def test_held_out_likelihood(book):
    import statsmodels.api as sm

    x = tabS1.with_price(book.records.price, book.records.standardised)
    accepted = book.records.accepted
    (split,) = tabS1.halves(4000, 1, 1)
    cell = tabS1.evaluate("linear", 1, "probit", x, accepted, [split])
    fit = sm.Probit(accepted[split[0]].astype(float), x[split[0]]).fit(disp=0, tol=1e-12)
    p = fit.predict(x[split[1]])
    y = accepted[split[1]]
    assert cell.likelihood[0] == pytest.approx(np.log(np.where(y, p, 1 - p)).mean(), rel=1e-6)


def cell_of(basis, link, fdp, likelihood=-0.5, degree=1):
    noise = 0.001 * np.random.default_rng(len(link) + len(basis)).standard_normal(10)
    return tabS1.Cell(basis, degree, link, fdp + noise, likelihood + noise * 1e-3, 0.7 + noise)


def test_verdicts_of_the_table(book):
    good = [
        cell_of("linear", "log", 0.05, -0.49),
        *(cell_of("linear", link, 0.2) for link in ("logit", "probit")),
    ]
    assert tabS1.smallest("b", good).status == "holds"
    assert tabS1.characterises("b", good).status == "holds"
    bad = [cell_of("linear", "log", 0.2, -0.6), cell_of("linear", "logit", 0.05)]
    assert tabS1.smallest("b", bad).status == "fails"
    assert tabS1.characterises("b", bad).status == "fails"
    partly = [cell_of("linear", "log", 0.05), cell_of("linear", "logit", 0.01)]
    assert tabS1.smallest("b", partly).status == "partly"
    missing = [cell_of("linear", "log", np.nan), cell_of("linear", "logit", 0.01)]
    assert tabS1.smallest("b", missing).status == "open"
    assert "not fitted" in tabS1.fit_table(book, missing).rows[-1]


def test_the_best_degree_is_shown():
    found = [
        cell_of("polynomial", "logit", 0.1, -0.5, 1),
        cell_of("polynomial", "logit", 0.2, -0.4, 2),
        cell_of("polynomial", "logit", np.nan, -0.1, 3),
    ]
    (kept,) = tabS1.best_degrees(found)
    assert kept.degree == 2


def test_table_s1(tmp_path, small_books):
    item = small(tabS1.TableS1, offers=600, splits=2)
    record = item.run(quick(tmp_path))
    fdr, fit = record.tables
    assert [row[0] for row in fdr.rows] == [
        "linear", "polynomial", "spline",
        "kernel (Epanechnikov)", "kernel (triangular)", "kernel (Gaussian)",
    ]  # fmt: skip
    assert all(len(row) == 6 for row in fdr.rows)
    assert len(fit.rows) == 18
    assert len(record.verdicts) == 2
    again = item.run(quick(tmp_path))
    assert again.tables == record.tables


def test_markets_of_another_seed_differ(book):
    assert isinstance(book.market(0), LoanPricing)
    assert book.market(0) == book.market(0)
    assert book.market(0) != book.market(1)
