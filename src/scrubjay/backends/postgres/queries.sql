-- What PostgreSQL says in its own way; everything else stands in `sql/queries.sql`.

-- name: lock_partition
-- The same, held against other writers until the transaction ends.
SELECT pid, next_seq, generation, epoch, tail_words, tail_vectors FROM partitions
WHERE tenant = ? AND subject = ? AND owner = ? FOR NO KEY UPDATE

-- name: reserve
-- The partitions whose jobs of a kind may be claimed, held against other claims. The lock is the
-- partition's own, not the rows': the claim itself is the next statement, which sees what an
-- earlier claim has committed.
SELECT pid FROM (
    SELECT pid FROM jobs
    WHERE state = 'ready' AND lease_until <= ? AND not_before <= ? AND kind = ?
    ORDER BY priority, jid LIMIT ?) waiting
WHERE pg_try_advisory_xact_lock(('x' || encode(substr(pid, 1, 8), 'hex'))::bit(64)::bigint)

-- name: claim
-- The ready jobs of a kind in some partitions, in order; what someone holds is left to them.
SELECT jid, pid, kind, payload, attempts, last_error, size FROM jobs j
WHERE state = 'ready' AND lease_until <= ? AND not_before <= ? AND kind = ? AND pid IN (?*)
    AND NOT EXISTS (SELECT 1 FROM jobs l WHERE l.pid = j.pid AND l.lease_until > 0
        AND l.lease_until > ?)
ORDER BY priority, jid LIMIT ? FOR UPDATE OF j SKIP LOCKED

-- name: lock_imports
-- One import at a time looks whether an id is another's.
SELECT pg_advisory_xact_lock(hashtext('scrubjay imports'))

-- name: memories_elsewhere
-- Which of these ids are memories of other partitions.
SELECT elsewhere('memory', ?, ?)

-- name: turns_elsewhere
-- Which of these ids are turns of other partitions.
SELECT elsewhere('turn', ?, ?)

-- name: journal
-- Journal what is new in one round trip.
SELECT journal(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
