"""The measurements of ``tools/bench_compare.py``, which compares FlintMQ with other brokers."""
