"""A Django application that stores orders in a database and sends a message for each order."""
