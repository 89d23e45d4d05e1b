"""The user's folder of data that cannot be part of the library: which files, and where."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

FOLDER_VARIABLE = "ZIB_DATA"
KZ_FILE = "karlan_zinman_2008/kz_demandelasts_aer08.dta"
KL_FILE = "karlan_list_2007/charitable.csv.gz"
CPRM_FILES = ("cprm/loans.csv", "cprm/loans.parquet", "cprm/loans.dta")


def data_files(names: Sequence[str] = (KZ_FILE, KL_FILE, *CPRM_FILES)) -> list[Path]:
    """Return those of the files that are in the user's folder of data."""
    folder = os.environ.get(FOLDER_VARIABLE)
    found = [Path(folder) / name for name in names] if folder else []
    return [path for path in found if path.is_file()]
