"""What ``tools/bench_compare.py`` measures and compares."""
