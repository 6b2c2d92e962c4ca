"""The ways in: each calls the public verbs and holds no logic of memory."""
