"""Found by Django."""
