"""Looks for damage: what must always hold between the tables."""

from __future__ import annotations

from scrubjay.backends.sql.session import Session

_RULES = (
    ("memories without a partition",
     "SELECT count(*) FROM memories WHERE pid NOT IN (SELECT pid FROM partitions)"),
    ("memories at or past their partition's next sequence",
     "SELECT count(*) FROM memories m JOIN partitions p ON p.pid = m.pid"
     " WHERE m.seq >= p.next_seq"),
    ("sources without a memory",
     "SELECT count(*) FROM sources s WHERE NOT EXISTS"
     " (SELECT 1 FROM memories m WHERE m.pid = s.pid AND m.seq = s.seq)"),
    ("sources without a turn",
     "SELECT count(*) FROM sources s WHERE NOT EXISTS (SELECT 1 FROM turns t WHERE t.id = s.turn"
     " AND t.pid = s.pid)"),
    ("memories whose first turn is gone",
     "SELECT count(*) FROM memories m WHERE m.turn IS NOT NULL AND NOT EXISTS"
     " (SELECT 1 FROM turns t WHERE t.id = m.turn AND t.pid = m.pid)"),
    ("memories without a source",
     "SELECT count(*) FROM memories m WHERE m.turn IS NULL AND NOT EXISTS"
     " (SELECT 1 FROM sources s WHERE s.pid = m.pid AND s.seq = m.seq)"),
    ("memories with a wrong count of sources",
     "SELECT count(*) FROM memories m WHERE m.repeats <> (SELECT count(*) FROM sources s"
     " WHERE s.pid = m.pid AND s.seq = m.seq)"),
    ("vectors without a memory",
     "SELECT count(*) FROM vectors v WHERE NOT EXISTS"
     " (SELECT 1 FROM memories m WHERE m.pid = v.pid AND m.seq = v.seq)"),
    ("words without a memory",
     "SELECT count(*) FROM words w WHERE NOT EXISTS"
     " (SELECT 1 FROM memories m WHERE m.pid = w.pid AND m.seq = w.seq)"),
    ("words both in the tail and in a segment",
     "SELECT count(*) FROM words w JOIN segments s ON s.pid = w.pid AND s.kind = 'words'"
     " AND w.seq BETWEEN s.min_seq AND s.max_seq"),
    ("superseded memories whose successor is gone",
     "SELECT count(*) FROM memories m WHERE m.state = 'superseded' AND NOT EXISTS"
     " (SELECT 1 FROM memories n WHERE n.id = m.superseded_by AND n.pid = m.pid)"),
    ("jobs without a partition",
     "SELECT count(*) FROM jobs WHERE pid NOT IN (SELECT pid FROM partitions)"),
)  # fmt: skip


def check(session: Session) -> list[str]:
    """What is wrong between the tables, a line each; [] when sound."""
    found = []
    for name, sql in _RULES:
        ((count,),) = session.select(sql)
        if count:
            found.append(f"{count} {name}")
    return found
