"""Speed, memory and start-up of zib, next to other libraries and to what the machine can do.

Run all with ``python -m benchmarks``. Absolute times move from machine to machine and from run to
run; the ratios, measured side by side in one process, are what is worth quoting.
"""
