"""The attrs classes of the configuration's sections, with a module for each group of sections."""
