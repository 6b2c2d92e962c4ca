"""What the SQL stores share: rows, the steps of each write, the reading of a snapshot.

A step is written once, over a `session.Session`, in statements that both engines understand;
`queries.sql` names them. What an engine says in its own way stands in its own `queries.sql`.
"""
