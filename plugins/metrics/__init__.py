"""Figures for monitoring systems, and whether the broker lives and is ready, over HTTP (docs/metrics.md).

A thread answers HTTP. It asks the loop for one snapshot of plain numbers, which costs the loop a slice of a millisecond at most
at once, and makes text of it outside the loop. What is not switched on imports nothing of this but the plugin.
"""
