"""The plugin that registers the broker's name, address and topics with name servers."""
