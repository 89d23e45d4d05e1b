"""Figure S4: the prices of the records and the five classes they are cut into."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from zib.cases.loan.fit import split_prices
from zib.cases.loan.market import CUT_LEVELS, CUT_PRICES, PUBLISHED_RANGE
from zib.experiments.draw import Drawn
from zib.experiments.harness import Experiment
from zib.experiments.loan_study import KZ_LEVELS, Book, books, record_notes, record_settings
from zib.experiments.record import Setting, Table, Verdict
from zib.logs.public.cprm import CLASSES

COLORS = ("#88CCEE", "#009E73", "#E69F00", "#D55E00", "#882255")
BINS = 150
SHOWN = 0.9985  # prices beyond this quantile are off the axis: a handful, far out
TOLERANCE = 0.005


class FigureS4(Experiment[list[Book]]):
    """The density of the prices, and their quantiles."""

    order = 9
    title = "Figure S4: prices and their classes"
    about = "Density of the offered prices; the dashed lines are where the classes are cut."
    weight = 0.3

    @cached_property
    def books(self) -> list[Book]:
        """All records that are there."""
        return books(self.context)

    def measure(self) -> list[Book]:
        """Return the records; there is nothing to compute."""
        return self.books

    def settings(self) -> Iterable[Setting]:
        """Return the settings."""
        return (
            *record_settings(self.books),
            Setting("cuts", "the .25, .75, .915 and .9875 quantiles of the price", "paper"),
            *(
                (Setting("cuts of the experiment", "fifths of the offered rates", "ours"),)
                if len(self.books) > 1
                else ()
            ),
            Setting("density", f"histogram with {BINS} bins", "ours"),
        )

    def tables(self, found: list[Book]) -> Iterable[Table]:
        """Return where the classes are cut and how many offers each holds."""
        return map(quantile_table, found)

    def claims(self, found: list[Book]) -> Iterable[Verdict]:
        """Judge whether the synthetic records are like the published ones."""
        return (published_quantiles(found[0]),)

    def notes(self, found: list[Book]) -> Iterable[str]:
        """Say which records were used."""
        return record_notes(found)

    def figures(self, found: list[Book]) -> Iterable[Drawn]:
        """Draw one panel per set of records."""
        import pandas as pd
        from matplotlib.figure import Figure

        frames, beyond_axis = [], []
        fig = Figure(figsize=(7.6 * len(found) ** 0.6, 4.4))
        axes = fig.subplots(1, len(found), squeeze=False)[0]
        for ax, book in zip(axes, found):
            price = book.records.price
            right = float(np.quantile(price, SHOWN)) if book.name == "synthetic" else price.max()
            edges = np.linspace(min(0.0, float(price.min())), right, BINS + 1)
            counts, _ = np.histogram(price, edges)
            density = counts / (price.size * np.diff(edges))
            centres = (edges[1:] + edges[:-1]) / 2
            owner = np.searchsorted(book.cuts, centres)
            for k, name in enumerate(CLASSES):
                mine = owner == k
                ax.bar(
                    centres[mine],
                    density[mine],
                    width=np.diff(edges)[mine],
                    color=COLORS[k],
                    label=name,
                    linewidth=0,
                )
            for cut in book.cuts:
                ax.axvline(cut, color="#555555", linestyle=(0, (4, 3)), linewidth=1.0)
            top = 1.3 * float(density.max())
            ax.set_ylim(0.0, top)
            ax.set_xlim(float(edges[0]) if book.name == "synthetic" else price.min(), right)
            ax.set_xlabel(f"price ({book.records.unit})")
            ax.set_title(f"{book.title} (n = {book.records.n_records})")
            for cut in book.cuts:
                ax.annotate(
                    f"{cut:.2f}",
                    (cut, 0.985 * top),
                    xytext=(2, 0),
                    textcoords="offset points",
                    rotation=90,
                    va="top",
                    ha="left",
                    fontsize=8.5,
                    color="#444444",
                )
            beyond = int((price > right).sum())
            if beyond:
                beyond_axis.append(
                    f"{beyond} of {price.size} prices of the {book.title} lie beyond the axis, up "
                    f"to {price.max():.2f}."
                )
            frames.append(
                pd.DataFrame(
                    {
                        "records": book.title,
                        "price": centres,
                        "density": density,
                        "class": np.asarray(CLASSES)[owner],
                    }
                )
            )
        axes[0].set_ylabel("density")
        fig.legend(
            *axes[0].get_legend_handles_labels(),
            loc="lower center",
            bbox_to_anchor=(0.5, 0.045),
            ncols=len(CLASSES),
            frameon=False,
        )
        fig.subplots_adjust(left=0.09, right=0.98, top=0.91, bottom=0.25, wspace=0.18)
        yield Drawn(
            fig,
            pd.concat(frames),
            "Density of prices by class. " + " ".join(beyond_axis),
            "Histograms of prices, coloured by class, with the cuts as dashed lines.",
        )


def quantile_table(book: Book) -> Table:
    """Return where the classes are cut and how many offers each holds."""
    parts = split_prices(book.records, book.cuts.tolist())
    levels = CUT_LEVELS[1:-1] if book.name == "synthetic" else KZ_LEVELS
    rows = []
    for k, (name, part) in enumerate(zip(CLASSES, parts)):
        upto = f"{levels[k]:g}" if k < len(levels) else "1"
        rows.append(
            (
                name,
                f"{part[0]:.4f} to {part[-1]:.4f}",
                upto,
                str(part.size),
                f"{100 * part.size / book.records.n_records:.2f} %",
                f"{part.mean():.3f}",
            )
        )
    return Table(
        f"{book.title}: classes ({book.records.unit})",
        ("class", "prices", "up to quantile", "offers", "share", "mean price"),
        tuple(rows),
    )


def published_quantiles(book: Book) -> Verdict:
    """Judge whether the records have the published quantiles and range."""
    price = book.records.price
    pairs = [
        (f"quantile {level:g}", float(np.quantile(price, level)), published)
        for level, published in zip(CUT_LEVELS[1:-1], CUT_PRICES[1:-1])
    ]
    ends = (float(price.min()), float(price.max()))
    pairs += list(zip(("smallest", "largest"), ends, PUBLISHED_RANGE))
    wrong = [name for name, mine, theirs in pairs if abs(mine / theirs - 1.0) > TOLERANCE]
    return Verdict(
        "The records have the published quantiles and range of the price (made that way)",
        "fails" if wrong else "holds",
        f"does not hold for {', '.join(wrong)}" if wrong else "holds to within half a percent",
        tuple(f"{name}: {mine:.4f} (published {theirs:g})" for name, mine, theirs in pairs),
    )
