"""What ``tools/bench_compare.py``, ``bench_latency.py`` and ``bench_report.py`` measure and compare."""
