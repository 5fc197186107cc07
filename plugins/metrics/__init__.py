"""Serves metrics and the probes for liveness and readiness over HTTP (docs/metrics.md).

A thread answers HTTP requests. The thread asks the event loop for a snapshot of plain numbers and formats them outside the
loop. The loop gathers the numbers in slices of about a millisecond. If metrics are off, only this package's plugin module is
imported.
"""
