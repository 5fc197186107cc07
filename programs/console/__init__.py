"""Web pages that show and change any RocketMQ 4.9 cluster, served by a separate process (docs/console.md)."""
