"""The data of ``flintmq top`` and ``flintmq console``: any RocketMQ 4.9 cluster, read only through administration requests."""
