"""Records OpenTelemetry spans of messages as they pass through the broker (docs/tracing.md).

A message's property ``traceparent`` says whether its producer's span is sampled. An intake step, which the broker calls before
it stores a message, records the messages with sampled spans. A service follows the recorded messages and creates child spans of
the producer's span. A thread pushes the child spans to a collector. If tracing is off, only this package's
plugin module is imported.
"""
