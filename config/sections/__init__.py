"""The models of the configuration, one file a group of sections."""
