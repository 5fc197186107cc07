"""From YAML text, the environment and options to a checked configuration."""
