"""Frames, headers and bodies as bytes: no socket and no broker is known here."""
