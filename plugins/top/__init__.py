"""``flintmq top``: a cluster in the terminal. Only :mod:`flintmq.plugins.top.app` and its screens need Textual."""
