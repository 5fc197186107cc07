"""Orders in a database, told to others by messages."""
