"""Public data sets, one file each.

A file here declares ``ENTRY``, a `zib.logs.catalogue.DataSet`, and defines ``load_<name>``, which
returns the data as a log. The catalogue finds it; ``__all__`` names what `zib.datasets` shows.
"""
