"""Names and files of the Java broker's configuration."""
