"""Where the real data of some tests lie, if they are there at all."""

import os
from pathlib import Path

import pytest

KARLAN_ZINMAN = "karlan_zinman_2008/kz_demandelasts_aer08.dta"
KARLAN_LIST = "karlan_list_2007/charitable.csv.gz"


def data_folder() -> Path | None:
    """The folder named by ZIB_DATA, else shared/data beside the checkout, else None."""
    named = os.environ.get("ZIB_DATA")
    folder = Path(named) if named else Path(__file__).parents[3] / "shared" / "data"
    return folder if folder.is_dir() else None


def data_file(name: str) -> Path:
    """A file of that folder, or the test is skipped."""
    folder = data_folder()
    if folder is None or not (folder / name).is_file():
        pytest.skip(f"the real data {name} are not here (set ZIB_DATA to their folder)")
    return folder / name
