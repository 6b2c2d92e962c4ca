-- name: find_partition
-- The row of one partition.
SELECT pid, next_seq, generation, epoch, tail_words, tail_vectors FROM partitions
WHERE tenant = ? AND subject = ? AND owner = ?

-- name: insert_partition
-- A new, empty partition.
INSERT INTO partitions (tenant, subject, owner, next_seq) VALUES (?, ?, ?, ?)

-- name: partition_key
-- The key of a partition by its number.
SELECT tenant, subject, owner FROM partitions WHERE pid = ?

-- name: append_to_partition
-- Move a partition forward after an append to its tail.
UPDATE partitions SET next_seq = ?, tail_words = tail_words + ?, generation = generation + 1
WHERE pid = ?

-- name: change_partition
-- Note a change that is more than an append.
UPDATE partitions SET generation = generation + 1, epoch = epoch + 1 WHERE pid = ?

-- name: find_request
-- The outcome an idempotency key had before.
SELECT digest, outcome FROM requests WHERE pid = ? AND key = ?

-- name: insert_request
-- Remember an idempotency key.
INSERT INTO requests (pid, key, digest, outcome) VALUES (?, ?, ?, ?)

-- name: insert_turn
-- Journal one turn.
INSERT INTO turns (id, pid, role, source_class, content, occurred_at, recorded_at, agent_id,
    session_id, namespace, device_id, metadata)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_memory
-- Write one memory.
INSERT INTO memories (id, pid, seq, kind, tier, state, role, source_class, content, content_hash,
    language, trust, confidence, importance, occurred_at, recorded_at, valid_from, valid_to,
    retired_at, expires_at, version, supersedes, superseded_by, reason, agent_id, session_id,
    namespace, device_id, metadata, previous)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_source
-- Note where a memory came from; the same span of the same turn counts once.
INSERT OR IGNORE INTO sources (pid, seq, tid, turn, start, stop, occurred_at, session_id, rule,
    repeated)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_words
-- Put a memory's words in the tail.
INSERT INTO words (pid, seq, length, previous, occurred_at, trust, confidence, blob)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_edge
-- Tie one memory to another.
INSERT OR IGNORE INTO edges (pid, seq, kind, to_seq) VALUES (?, ?, ?, ?)

-- name: find_repeated
-- The active episode that already says the same.
SELECT seq, id, expires_at FROM memories
WHERE pid = ? AND content_hash = ? AND state = 'active'

-- name: retire_expired
-- An expired episode no longer stands for its words.
UPDATE memories SET state = 'stale', reason = 'expired', retired_at = expires_at
WHERE pid = ? AND seq = ?

-- name: last_of_session
-- The newest memory of a session, which the next one follows.
SELECT max(seq) FROM memories WHERE pid = ? AND session_id = ?

-- name: insert_job
-- Add background work.
INSERT INTO jobs (pid, kind, priority, size, added_at, payload) VALUES (?, ?, ?, ?, ?, ?)

-- name: has_seal_job
-- Whether a partition's sealing is already asked for.
SELECT 1 FROM jobs
WHERE pid = ? AND kind = 'seal' AND state = 'ready' AND lease_until = 0

-- name: locate
-- The partition, sequence and state of a memory's id.
SELECT pid, seq, state FROM memories WHERE id = ?

-- name: next_version
-- The id that superseded a memory.
SELECT superseded_by FROM memories WHERE pid = ? AND id = ?

-- name: supersede
-- Retire the head of a chain in favour of its successor.
UPDATE memories SET state = 'superseded', superseded_by = ?, reason = ?, retired_at = ?,
    valid_to = coalesce(valid_to, ?)
WHERE pid = ? AND seq = ?

-- name: has_tombstone
-- Whether an origin was forgotten here.
SELECT 1 FROM tombstones WHERE pid = ? AND origin = ?

-- name: find_tombstone
-- What a tombstone holds, and since when.
SELECT digest, forgotten_at FROM tombstones WHERE pid = ? AND origin = ?

-- name: insert_tombstone
-- Remember that an origin was forgotten.
INSERT OR REPLACE INTO tombstones (pid, origin, digest, forgotten_at) VALUES (?, ?, ?, ?)

-- name: list_segments
-- Every segment of a partition, without its blob.
SELECT sid, kind, model, count, min_seq, max_seq FROM segments WHERE pid = ?
ORDER BY kind, model, min_seq

-- name: segment_blob
-- One segment's blob.
SELECT blob FROM segments WHERE pid = ? AND sid = ?

-- name: insert_segment
-- Put a sealed segment in place.
INSERT INTO segments (pid, kind, model, count, min_seq, max_seq, blob) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: delete_segment
-- Take a segment out.
DELETE FROM segments WHERE pid = ? AND sid = ?

-- name: tail_words
-- The words that no segment holds.
SELECT seq, length, previous, occurred_at, trust, confidence, blob FROM words
WHERE pid = ? AND seq > ? ORDER BY seq

-- name: tail_vectors
-- The vectors that no segment holds.
SELECT vid, seq, blob FROM vectors WHERE pid = ? AND model = ? AND sealed = 0 AND vid > ?
ORDER BY vid

-- name: hidden
-- The memories that a default search must not show.
SELECT seq FROM memories WHERE pid = ? AND state <> 'active'

-- name: expiries
-- The memories that expire, with when.
SELECT seq, expires_at FROM memories
WHERE pid = ? AND expires_at IS NOT NULL AND state = 'active'

-- name: metadata
-- The metadata of the memories that have any.
SELECT seq, metadata FROM memories WHERE pid = ? AND seq > ? AND metadata IS NOT NULL ORDER BY seq

-- name: turns
-- A partition's journal.
SELECT tid, id, role, source_class, content, occurred_at, recorded_at, agent_id, session_id,
    namespace, device_id, metadata
FROM turns WHERE pid = ? AND tid > ? ORDER BY tid LIMIT 500

-- name: claim_first
-- The kind of the job whose turn it is.
SELECT kind FROM jobs
WHERE state = 'ready' AND lease_until <= ?1 AND not_before <= ?1
ORDER BY priority, jid LIMIT 1

-- name: claim
-- The ready jobs of a kind, in order.
SELECT jid, pid, kind, payload, attempts, last_error, size FROM jobs
WHERE state = 'ready' AND lease_until <= ?1 AND not_before <= ?1 AND kind = ?2
ORDER BY priority, jid LIMIT ?3

-- name: lease
-- Hold a job until its lease runs out.
UPDATE jobs SET lease_until = ?, attempts = attempts + 1 WHERE jid = ?

-- name: complete
-- A job is done, unless its lease ran out and another has it.
DELETE FROM jobs WHERE jid = ? AND lease_until = ?

-- name: fail
-- Give a job back, unless its lease ran out and another has it.
UPDATE jobs SET state = ?, lease_until = 0, not_before = ?, last_error = ?, payload = ?
WHERE jid = ? AND lease_until = ?

-- name: revive
-- Make every job ready now.
UPDATE jobs SET state = 'ready', attempts = 0, not_before = 0
WHERE state = 'dead' OR not_before > 0

-- name: job_counts
-- Jobs by state and kind.
SELECT CASE WHEN state = 'dead' THEN 'dead' WHEN lease_until > ?1 THEN 'leased'
    WHEN not_before > ?1 THEN 'waiting' ELSE 'ready' END, kind, count(*)
FROM jobs WHERE ?2 IS NULL OR added_at <= ?2 GROUP BY 1, 2

-- name: dead_jobs
-- The jobs of a partition that failed too often.
SELECT jid, pid, kind, payload, attempts, last_error FROM jobs WHERE pid = ? AND state = 'dead'

-- name: find_model
-- A model by its name.
SELECT model, name, dimension, baseline FROM models WHERE name = ?

-- name: insert_model
-- Remember a model.
INSERT INTO models (name, dimension, baseline) VALUES (?, ?, ?)

-- name: models
-- Every model.
SELECT model, name, dimension, baseline FROM models ORDER BY model

-- name: delete_vector
-- Take a vector out, before a new one or for good.
DELETE FROM vectors WHERE pid = ? AND model = ? AND seq = ?

-- name: insert_vector
-- Put a vector in the tail, if its memory still exists.
INSERT INTO vectors (pid, model, seq, blob)
SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM memories WHERE pid = ?1 AND seq = ?3)

-- name: grow_vector_tail
-- Move a partition forward after new vectors.
UPDATE partitions SET tail_vectors = tail_vectors + ?, generation = generation + 1 WHERE pid = ?

-- name: seal_vector
-- A segment now holds this vector.
UPDATE vectors SET sealed = 1 WHERE pid = ? AND vid = ? AND sealed = 0

-- name: seal_words
-- A segment now holds these words.
DELETE FROM words WHERE pid = ? AND seq = ?

-- name: shrink_tails
-- Note how much of the tails went into a segment.
UPDATE partitions SET tail_words = max(0, tail_words - ?), tail_vectors = max(0, tail_vectors - ?),
    generation = generation + 1, epoch = epoch + 1
WHERE pid = ?

-- name: missing_vectors
-- Memories of a partition that a model has no vector of.
SELECT m.seq FROM memories m
WHERE m.pid = ?1 AND m.seq > ?3 AND NOT EXISTS
    (SELECT 1 FROM vectors v WHERE v.pid = m.pid AND v.model = ?2 AND v.seq = m.seq)
ORDER BY m.seq LIMIT ?4

-- name: count_missing
-- How many memories a model has no vector of.
SELECT (SELECT count(*) FROM memories) - (SELECT count(*) FROM vectors WHERE model = ?)

-- name: link_versions
-- Tie each version to the one before it, after an import.
INSERT OR IGNORE INTO edges (pid, seq, kind, to_seq)
SELECT m.pid, m.seq, 'supersedes', o.seq FROM memories m JOIN memories o
    ON o.id = m.supersedes AND o.pid = m.pid
WHERE m.pid = ? AND m.supersedes IS NOT NULL

-- name: memory_elsewhere
-- Whether a memory's id belongs to another subject.
SELECT 1 FROM memories m JOIN partitions p USING (pid)
WHERE m.id = ? AND NOT (p.tenant = ? AND p.subject = ?)

-- name: turn_elsewhere
-- Whether a turn's id belongs to another subject.
SELECT 1 FROM turns t JOIN partitions p USING (pid)
WHERE t.id = ? AND NOT (p.tenant = ? AND p.subject = ?)

-- name: first_source
-- Where a memory was first said, of what is left.
SELECT tid FROM sources WHERE pid = ? AND seq = ? ORDER BY occurred_at, tid LIMIT 1

-- name: move_to_first_source
-- A memory that lost a source counts from the first of the others.
UPDATE memories SET (occurred_at, session_id, agent_id, device_id) = (
    SELECT s.occurred_at, t.session_id, t.agent_id, t.device_id
    FROM sources s JOIN turns t ON t.tid = s.tid
    WHERE s.pid = memories.pid AND s.seq = memories.seq ORDER BY s.occurred_at, s.tid LIMIT 1)
WHERE pid = ? AND seq = ?

-- name: recount_tails
-- Count the tails anew after an erasure.
UPDATE partitions SET
    tail_words = (SELECT count(*) FROM words w WHERE w.pid = partitions.pid),
    tail_vectors = (SELECT count(*) FROM vectors v WHERE v.pid = partitions.pid AND v.sealed = 0)
WHERE pid = ?

-- name: links
-- Which memory follows which.
SELECT seq, previous FROM memories WHERE pid = ? AND previous > 0

-- name: seq_of
-- The sequence of a memory's id.
SELECT seq FROM memories WHERE pid = ? AND id = ?

-- name: sealed_vectors
-- The vectors that a segment should hold.
SELECT seq FROM vectors WHERE pid = ? AND model = ? AND sealed = 1

-- name: unseal_vectors
-- Put every vector of a partition in the tail again.
UPDATE vectors SET sealed = 0 WHERE pid = ?

-- name: delete_vector_segments
-- Take the segments away that held them.
DELETE FROM segments WHERE pid = ? AND kind = 'vectors'
