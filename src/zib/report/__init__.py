"""Figures, pages and numbers as text, made from results only: nothing here runs anything."""

from zib.report.panels import (
    FigureFiles,
    Panel,
    leave_small_print,
    legend_below,
    legend_height,
    regret_figure,
    regret_frame,
    regret_panel,
    save_figure,
    small_print,
)
from zib.report.style import Style, declared_styles, paper_style, style_of, styles_of

__all__ = [
    "FigureFiles",
    "Panel",
    "Style",
    "declared_styles",
    "leave_small_print",
    "legend_below",
    "legend_height",
    "paper_style",
    "regret_figure",
    "regret_frame",
    "regret_panel",
    "save_figure",
    "small_print",
    "style_of",
    "styles_of",
]
