"""Registration as a plugin: tells name servers the broker's name, address and topics."""
