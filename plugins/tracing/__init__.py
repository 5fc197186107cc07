"""Traces: spans of OpenTelemetry for the way of messages through the broker (docs/tracing.md).

A message whose producer's span is sampled says so in its property ``traceparent``. An intake step notes such messages, a
service follows them and makes spans that are children of the producer's, and a thread pushes these to a collector. What is
not switched on imports nothing of this but the plugin.
"""
