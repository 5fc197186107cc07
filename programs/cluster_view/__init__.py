"""What ``flintmq top`` and ``flintmq console`` show: any RocketMQ 4.9 cluster, read by administration requests alone."""
