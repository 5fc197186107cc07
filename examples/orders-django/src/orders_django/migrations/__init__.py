"""The migrations of the database, which ``migrate`` applies in order."""
