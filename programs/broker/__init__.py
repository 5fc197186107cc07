"""The broker: modules that assemble, start and stop a broker, and parts that FlintMQ's name server does not have."""
