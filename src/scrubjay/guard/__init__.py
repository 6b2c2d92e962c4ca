"""Who may do what, and what may be kept: access, redact, poison, crypt.

Every verb passes `access` first. A write then passes `redact` and `poison` before the journal;
these two let everything through for now and mark the place where the rules will stand.
"""
