"""The measurements of ``tools/bench_compare.py``."""
