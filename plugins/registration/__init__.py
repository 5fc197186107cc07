"""Registration as a plugin: tells name servers who the broker is and which topics it has."""
