"""The message record: its layout, encoder and readers, properties and identifiers."""
