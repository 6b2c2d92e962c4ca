-- Statements that every SQL store understands. `?` marks a value, `IN (?*)` a list of integers or
-- of blobs.

-- name: find_partition
-- The row of one partition.
SELECT pid, next_seq, generation, epoch, tail_words, tail_vectors FROM partitions
WHERE tenant = ? AND subject = ? AND owner = ?

-- name: lock_partition
-- The same, held against other writers until the transaction ends.
SELECT pid, next_seq, generation, epoch, tail_words, tail_vectors FROM partitions
WHERE tenant = ? AND subject = ? AND owner = ?

-- name: insert_partition
-- A new, empty partition.
INSERT INTO partitions (pid, tenant, subject, owner, next_seq, generation, epoch)
VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING

-- name: partition_key
-- The key of a partition by its number.
SELECT tenant, subject, owner FROM partitions WHERE pid = ?

-- name: partitions
-- Every partition, for maintenance.
SELECT tenant, subject, owner FROM partitions ORDER BY tenant, subject, owner

-- name: subject_partitions
-- The partitions of one user or device.
SELECT tenant, subject, owner FROM partitions WHERE tenant = ? AND subject = ? ORDER BY owner

-- name: append_to_partition
-- Move a partition forward after an append to its tail.
UPDATE partitions SET next_seq = ?, tail_words = tail_words + ?, generation = generation + 1
WHERE pid = ?

-- name: change_partition
-- Note a change that is more than an append.
UPDATE partitions SET generation = generation + 1, epoch = epoch + 1 WHERE pid = ?

-- name: set_word_tail
-- How long the word tail is.
UPDATE partitions SET tail_words = ? WHERE pid = ?

-- name: find_forgotten
-- Where a partition that was forgotten whole left off, and when that was.
SELECT next_seq, generation, forgotten_at FROM forgotten_partitions WHERE mark = ?

-- name: insert_forgotten
-- Remember that a partition was forgotten whole.
INSERT INTO forgotten_partitions (mark, next_seq, generation, forgotten_at) VALUES (?, ?, ?, ?)
ON CONFLICT (mark) DO UPDATE SET next_seq = excluded.next_seq, generation = excluded.generation,
    forgotten_at = excluded.forgotten_at

-- name: all_forgotten
-- Every partition that was forgotten whole.
SELECT mark, next_seq, generation, forgotten_at FROM forgotten_partitions ORDER BY mark

-- name: secret
-- The store's random bytes.
SELECT value FROM meta WHERE key = 'secret'

-- name: set_secret
-- Take on another store's random bytes.
UPDATE meta SET value = ? WHERE key = 'secret'

-- name: find_request
-- The outcome an idempotency key had before.
SELECT digest, outcome FROM requests WHERE pid = ? AND key = ?

-- name: insert_request
-- Remember an idempotency key.
INSERT INTO requests (pid, key, digest, outcome) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING

-- name: requests
-- Every idempotency key of a partition.
SELECT key, digest, outcome FROM requests WHERE pid = ? ORDER BY key

-- name: delete_request
-- Forget an idempotency key.
DELETE FROM requests WHERE pid = ? AND key = ?

-- name: insert_turn
-- Journal one turn.
INSERT INTO turns (id, pid, role, source_class, content, occurred_at, recorded_at, agent_id,
    session_id, namespace, device_id, metadata)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: find_turn
-- Whether a partition has a turn.
SELECT content FROM turns WHERE pid = ? AND id = ?

-- name: overwrite_turn
-- Blot characters out of a turn.
UPDATE turns SET content = ? WHERE pid = ? AND id = ?

-- name: delete_turn
-- Remove a turn.
DELETE FROM turns WHERE pid = ? AND id = ?

-- name: turns_of_session
-- The turns of a session.
SELECT id FROM turns WHERE pid = ? AND session_id = ?

-- name: turns_before
-- The turns that were said before a time.
SELECT id FROM turns WHERE pid = ? AND occurred_at < ?

-- name: oldest_turn
-- When the first turn of a partition was written.
SELECT min(recorded_at) FROM turns WHERE pid = ?

-- name: insert_memory
-- Write one memory.
INSERT INTO memories (id, pid, seq, kind, tier, state, role, source_class, content, content_hash,
    language, trust, confidence, importance, occurred_at, recorded_at, valid_from, valid_to,
    retired_at, expires_at, version, supersedes, superseded_by, reason, agent_id, session_id,
    namespace, device_id, metadata, previous, turn, start, stop, rule)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?)

-- name: insert_source
-- Note where else a memory came from; the same span of the same turn counts once.
INSERT INTO sources (pid, seq, turn, start, stop, occurred_at, session_id, rule)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING

-- name: count_sources
-- How many further sources a memory has.
UPDATE memories SET repeats = (SELECT count(*) FROM sources s WHERE s.pid = ? AND s.seq = ?)
WHERE pid = ? AND seq = ?

-- name: insert_words
-- Put a memory's words in the tail.
INSERT INTO words (pid, seq, length, previous, occurred_at, trust, confidence, blob)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_edge
-- Tie one memory to another.
INSERT INTO edges (pid, seq, kind, to_seq) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING

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
-- The sequence of a memory's id.
SELECT seq, version, superseded_by FROM memories WHERE pid = ? AND id = ?

-- name: supersede
-- Retire the head of a chain in favour of its successor.
UPDATE memories SET state = 'superseded', superseded_by = ?, reason = ?, retired_at = ?,
    valid_to = coalesce(valid_to, ?)
WHERE pid = ? AND seq = ?

-- name: insert_tombstone
-- Remember that an origin was forgotten.
INSERT INTO tombstones (pid, origin, digest, forgotten_at) VALUES (?, ?, ?, ?)
ON CONFLICT (pid, origin) DO UPDATE SET digest = excluded.digest,
    forgotten_at = excluded.forgotten_at

-- name: tombstones
-- What was forgotten in a partition.
SELECT origin, digest, forgotten_at FROM tombstones WHERE pid = ? ORDER BY origin

-- name: all_tombstones
-- What was forgotten in every partition.
SELECT p.tenant, p.subject, p.owner, t.origin, t.digest, t.forgotten_at
FROM tombstones t JOIN partitions p ON p.pid = t.pid

-- name: list_segments
-- Every segment of a partition, without its blob.
SELECT sid, kind, model, count, min_seq, max_seq FROM segments WHERE pid = ?
ORDER BY kind, model, min_seq

-- name: segment_blob
-- One segment's blob.
SELECT blob FROM segments WHERE pid = ? AND sid = ?

-- name: segments_between
-- The segments that may hold something of a range of sequences.
SELECT sid, kind, model, min_seq, max_seq, blob FROM segments
WHERE pid = ? AND max_seq >= ? AND min_seq <= ?

-- name: insert_segment
-- Put a sealed segment in place.
INSERT INTO segments (pid, kind, model, count, min_seq, max_seq, blob) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: delete_segment
-- Take a segment out.
DELETE FROM segments WHERE pid = ? AND sid = ?

-- name: delete_segments
-- Take segments out.
DELETE FROM segments WHERE pid = ? AND sid IN (?*)

-- name: count_segments
-- How many of these segments are there.
SELECT count(*) FROM segments WHERE pid = ? AND sid IN (?*)

-- name: tail_words
-- The words that no segment holds.
SELECT seq, length, previous, occurred_at, trust, confidence, blob FROM words
WHERE pid = ? AND seq > ? ORDER BY seq

-- name: tail_vectors
-- The vectors that no segment holds.
SELECT vid, seq, blob FROM vectors WHERE pid = ? AND model = ? AND sealed = 0 AND vid > ?
ORDER BY vid

-- name: vectors_of
-- The vectors of some memories.
SELECT seq, blob FROM vectors WHERE pid = ? AND model = ? AND seq IN (?*)

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

-- name: records
-- Whole memories, each with its first source.
SELECT id, seq, kind, tier, state, role, source_class, content, language, trust,
    confidence, importance, occurred_at, recorded_at, valid_from, valid_to, retired_at, expires_at,
    version, supersedes, superseded_by, reason, agent_id, session_id, namespace, device_id,
    metadata, turn, start, stop, rule, repeats
FROM memories WHERE pid = ? AND seq IN (?*)

-- name: sources_of
-- The further sources of some memories.
SELECT seq, turn, start, stop, occurred_at, session_id, rule FROM sources
WHERE pid = ? AND seq IN (?*)

-- name: contents
-- The contents of some memories.
SELECT seq, content FROM memories WHERE pid = ? AND seq IN (?*)

-- name: for_words
-- What the words of a partition are made from.
SELECT seq, content, occurred_at, previous, trust, confidence FROM memories
WHERE pid = ? AND seq > ? ORDER BY seq LIMIT 500

-- name: turns
-- A partition's journal.
SELECT tid, id, role, source_class, content, occurred_at, recorded_at, agent_id, session_id,
    namespace, device_id, metadata
FROM turns WHERE pid = ? AND tid > ? ORDER BY tid LIMIT 500

-- name: chain
-- All versions that superseded one another, from any one of them.
WITH RECURSIVE back(id, prior) AS (
    SELECT id, supersedes FROM memories WHERE pid = ? AND id = ?
    UNION SELECT m.id, m.supersedes FROM memories m JOIN back ON m.id = back.prior
    WHERE m.pid = ?),
forth(id, next) AS (
    SELECT id, superseded_by FROM memories WHERE pid = ? AND id = ?
    UNION SELECT m.id, m.superseded_by FROM memories m JOIN forth ON m.id = forth.next
    WHERE m.pid = ?)
SELECT seq FROM memories WHERE pid = ?
AND id IN (SELECT id FROM back UNION SELECT id FROM forth) ORDER BY version, seq

-- name: claim_first
-- The kind of the job whose turn it is. A partition one of whose jobs is under way has to wait.
SELECT kind FROM jobs j
WHERE state = 'ready' AND lease_until <= ? AND not_before <= ?
    AND NOT EXISTS (SELECT 1 FROM jobs l WHERE l.pid = j.pid AND l.lease_until > 0
        AND l.lease_until > ?)
ORDER BY priority, jid LIMIT 1

-- name: reserve
-- The partitions whose jobs of a kind may be claimed, held against other claims.
SELECT pid FROM jobs WHERE state = 'ready' AND lease_until <= ? AND not_before <= ? AND kind = ?
ORDER BY priority, jid LIMIT ?

-- name: claim
-- The ready jobs of a kind in some partitions, in order.
SELECT jid, pid, kind, payload, attempts, last_error, size FROM jobs j
WHERE state = 'ready' AND lease_until <= ? AND not_before <= ? AND kind = ? AND pid IN (?*)
    AND NOT EXISTS (SELECT 1 FROM jobs l WHERE l.pid = j.pid AND l.lease_until > 0
        AND l.lease_until > ?)
ORDER BY priority, jid LIMIT ?

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
SELECT CASE WHEN state = 'dead' THEN 'dead' WHEN lease_until > ? THEN 'leased'
    WHEN not_before > ? THEN 'waiting' ELSE 'ready' END, kind, count(*)
FROM jobs WHERE added_at <= ? GROUP BY 1, 2

-- name: dead_jobs
-- The jobs of a partition that failed too often.
SELECT jid, pid, kind, payload, attempts, last_error FROM jobs WHERE pid = ? AND state = 'dead'

-- name: embed_jobs
-- The jobs of a partition that name memories.
SELECT jid, payload FROM jobs WHERE pid = ? AND kind = 'embed' ORDER BY jid

-- name: change_job
-- Give a job another payload.
UPDATE jobs SET payload = ? WHERE pid = ? AND jid = ?

-- name: delete_job
-- Take a job out.
DELETE FROM jobs WHERE pid = ? AND jid = ?

-- name: find_model
-- A model by its name.
SELECT model, name, dimension, baseline FROM models WHERE name = ?

-- name: insert_model
-- Remember a model.
INSERT INTO models (name, dimension, baseline) VALUES (?, ?, ?) ON CONFLICT DO NOTHING

-- name: models
-- Every model.
SELECT model, name, dimension, baseline FROM models ORDER BY model

-- name: delete_model
-- Forget a model.
DELETE FROM models WHERE model = ?

-- name: delete_vectors
-- Take vectors out, before new ones are written.
DELETE FROM vectors WHERE pid = ? AND model = ? AND seq IN (?*)

-- name: present
-- Which of these memories are there.
SELECT seq FROM memories WHERE pid = ? AND seq IN (?*)

-- name: insert_vector
-- Put a vector in the tail.
INSERT INTO vectors (pid, model, seq, blob) VALUES (?, ?, ?, ?)

-- name: grow_vector_tail
-- Move a partition forward after new vectors.
UPDATE partitions SET tail_vectors = tail_vectors + ?, generation = generation + 1 WHERE pid = ?

-- name: vectors_in_tail
-- Which of these row ids are in the tail.
SELECT count(*) FROM vectors WHERE pid = ? AND sealed = 0 AND vid IN (?*)

-- name: seal_vectors
-- A segment now holds these vectors.
UPDATE vectors SET sealed = 1 WHERE pid = ? AND sealed = 0 AND vid IN (?*)

-- name: words_in_tail
-- Which of these memories have their words in the tail.
SELECT count(*) FROM words WHERE pid = ? AND seq IN (?*)

-- name: seal_words
-- A segment now holds these words.
DELETE FROM words WHERE pid = ? AND seq IN (?*)

-- name: delete_words
-- Throw the tail of words away.
DELETE FROM words WHERE pid = ?

-- name: delete_word_segments
-- Throw the segments of words away.
DELETE FROM segments WHERE pid = ? AND kind = 'words'

-- name: missing_vectors
-- Memories of a partition that a model has no vector of.
SELECT m.seq FROM memories m
WHERE m.pid = ? AND m.seq > ? AND NOT EXISTS
    (SELECT 1 FROM vectors v WHERE v.pid = m.pid AND v.model = ? AND v.seq = m.seq)
ORDER BY m.seq LIMIT ?

-- name: count_missing
-- How many memories a model has no vector of.
SELECT (SELECT count(*) FROM memories) - (SELECT count(*) FROM vectors WHERE model = ?)

-- name: drop_vectors
-- Every vector of a model, everywhere.
DELETE FROM vectors WHERE model = ?

-- name: drop_vector_segments
-- Every segment of a model, everywhere.
DELETE FROM segments WHERE kind = 'vectors' AND model = ?

-- name: recount_all_tails
-- Count every tail of vectors anew.
UPDATE partitions SET generation = generation + 1, epoch = epoch + 1, tail_vectors =
    (SELECT count(*) FROM vectors v WHERE v.pid = partitions.pid AND v.sealed = 0)

-- name: link_versions
-- Tie each version to the one before it, after an import.
INSERT INTO edges (pid, seq, kind, to_seq)
SELECT m.pid, m.seq, 'supersedes', o.seq FROM memories m JOIN memories o
    ON o.id = m.supersedes AND o.pid = m.pid
WHERE m.pid = ? AND m.supersedes IS NOT NULL ON CONFLICT DO NOTHING

-- name: lock_imports
-- One import at a time looks whether an id is another's.
SELECT 1

-- name: memories_elsewhere
-- Which of these ids are memories of other partitions.
SELECT id FROM memories WHERE pid <> ? AND id IN (?*)

-- name: turns_elsewhere
-- Which of these ids are turns of other partitions.
SELECT id FROM turns WHERE pid <> ? AND id IN (?*)

-- name: memories_here
-- Which of these ids are memories of a partition.
SELECT id FROM memories WHERE pid = ? AND id IN (?*)

-- name: turns_here
-- Which of these ids are turns of a partition.
SELECT id FROM turns WHERE pid = ? AND id IN (?*)

-- name: forgotten_here
-- Which of these origins a partition has forgotten.
SELECT origin FROM tombstones WHERE pid = ? AND origin IN (?*)

-- name: owner_of_memory
-- Whose memory an id is.
SELECT p.tenant, p.subject FROM memories m JOIN partitions p ON p.pid = m.pid WHERE m.id = ?

-- name: owner_of_turn
-- Whose turn an id is.
SELECT p.tenant, p.subject FROM turns t JOIN partitions p ON p.pid = t.pid WHERE t.id = ?

-- name: memories_of_turn
-- The memories that were first said in a turn.
SELECT seq FROM memories WHERE pid = ? AND turn = ?

-- name: repeats_of_turn
-- The memories that were said again in a turn.
SELECT seq FROM sources WHERE pid = ? AND turn = ?

-- name: delete_sources_of_turn
-- A turn is no further source any more.
DELETE FROM sources WHERE pid = ? AND turn = ?

-- name: first_source
-- Where a memory was said first, of its further sources.
SELECT turn, start, stop, occurred_at, session_id, rule FROM sources
WHERE pid = ? AND seq = ? ORDER BY occurred_at, turn, start LIMIT 1

-- name: delete_source
-- A further source becomes the first, or goes.
DELETE FROM sources WHERE pid = ? AND seq = ? AND turn = ? AND start = ?

-- name: move_to_source
-- A memory that lost its first source counts from the next.
UPDATE memories SET turn = ?, start = ?, stop = ?, occurred_at = ?, session_id = ?, rule = ?,
    (agent_id, device_id) = (SELECT t.agent_id, t.device_id FROM turns t
        WHERE t.pid = memories.pid AND t.id = ?)
WHERE pid = ? AND seq = ?

-- name: clear_source
-- A memory that lost its first source and has no other.
UPDATE memories SET turn = NULL WHERE pid = ? AND seq = ?

-- name: without_source
-- The id of a memory that nobody said any more.
SELECT id FROM memories WHERE pid = ? AND seq = ? AND turn IS NULL AND repeats = 0

-- name: spans_of
-- Which characters of which turns a memory came from.
SELECT turn, start, stop FROM memories WHERE pid = ? AND seq = ? AND turn IS NOT NULL
UNION ALL SELECT turn, start, stop FROM sources WHERE pid = ? AND seq = ?

-- name: recount_tails
-- Count the tails anew after an erasure.
UPDATE partitions SET
    tail_words = (SELECT count(*) FROM words w WHERE w.pid = partitions.pid),
    tail_vectors = (SELECT count(*) FROM vectors v WHERE v.pid = partitions.pid AND v.sealed = 0)
WHERE pid = ?

-- name: links
-- Which memory follows which.
SELECT seq, previous FROM memories WHERE pid = ? AND previous > 0

-- name: versions_of
-- A memory with the ids before and after it.
SELECT seq, supersedes, superseded_by FROM memories WHERE pid = ? AND id = ?

-- name: id_of
-- The id and the hash of a memory.
SELECT id, content_hash FROM memories WHERE pid = ? AND seq = ?

-- name: ids
-- Every memory's id in a partition.
SELECT id FROM memories WHERE pid = ? ORDER BY seq

-- name: sealed_vectors
-- The vectors that a segment should hold.
SELECT seq FROM vectors WHERE pid = ? AND model = ? AND sealed = 1

-- name: unseal_vectors
-- Put every vector of a partition in the tail again.
UPDATE vectors SET sealed = 0 WHERE pid = ?

-- name: delete_vector_segments
-- Take the segments away that held them.
DELETE FROM segments WHERE pid = ? AND kind = 'vectors'
