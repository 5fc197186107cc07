"""``flintmq top``: shows a cluster in the terminal. Only :mod:`flintmq.programs.top.app` and its screens need Textual."""
