"""Web pages that show any RocketMQ 4.9 cluster and change it, served by a process of their own (docs/console.md)."""
