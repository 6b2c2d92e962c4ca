"""What fills the ports. Only `wiring` imports from here."""
