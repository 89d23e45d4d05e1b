"""Options that say who reads a log: this process, or the workers of a cluster."""

from __future__ import annotations

from typing import Annotated, Any

import typer

_PANEL = "Who reads the log"

Backend = Annotated[
    str | None,
    typer.Option(
        help="serial, or dask: workers of a cluster; numbers are the same.", rich_help_panel=_PANEL
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        help="Processes of a Dask cluster made for the run.", min=1, rich_help_panel=_PANEL
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help="Address of a Dask scheduler; implies --backend dask.", rich_help_panel=_PANEL
    ),
]


def machines(backend: str | None, workers: int | None, scheduler: str | None) -> dict[str, Any]:
    """Return what was said as arguments."""
    implied = "dask" if scheduler is not None else "serial"
    return {"backend": backend or implied, "workers": workers, "scheduler": scheduler}
