-- The schema of a new store, version 1. Migrations lead from every older version to the newest;
-- a test compares the two. Run by the owner, in the schema `scrubjay`. Times are microseconds
-- since 1970 in UTC. Columns named content, metadata, blob and payload have passed the codec.
--
-- A partition's number is a keyed hash of its names, so that it is known before anything is read,
-- names nobody, and spreads users evenly over the hash partitions of each large table.
--
-- The second wall: each transaction says in `scrubjay.pids` which partitions it may touch, and in
-- `scrubjay.maintenance` whether it looks after the whole store. Unset means no rows. The wall
-- holds for the role `scrubjay_app`, under which every connection works: it owns nothing.

-- secret: the store's random bytes, which a backup brings along. pids: those that partitions are
-- numbered by, which stay with the database, so that no process ever has wrong numbers.
CREATE TABLE meta (
    key text COLLATE "C" PRIMARY KEY,
    value bytea NOT NULL
);

-- Readable by everyone who may connect, so that an older Scrubjay can say what is wrong.
CREATE TABLE schema_version (version bigint NOT NULL);
INSERT INTO schema_version VALUES (0);
GRANT USAGE ON SCHEMA scrubjay TO PUBLIC;
GRANT SELECT ON schema_version TO PUBLIC;

CREATE TABLE partitions (
    pid bytea PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    subject text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    next_seq bigint NOT NULL,
    generation bigint NOT NULL,
    epoch bigint NOT NULL,
    tail_words bigint NOT NULL DEFAULT 0,
    tail_vectors bigint NOT NULL DEFAULT 0,
    UNIQUE (tenant, subject, owner)
) WITH (fillfactor = 50);

CREATE TABLE turns (
    pid bytea NOT NULL,
    tid bigint GENERATED ALWAYS AS IDENTITY,
    id bytea NOT NULL,
    role text COLLATE "C" NOT NULL,
    source_class text COLLATE "C" NOT NULL,
    content bytea NOT NULL,
    occurred_at bigint NOT NULL,
    recorded_at bigint NOT NULL,
    agent_id text COLLATE "C",
    session_id text COLLATE "C",
    namespace text COLLATE "C",
    device_id text COLLATE "C",
    metadata bytea,
    PRIMARY KEY (pid, tid),
    UNIQUE (id, pid)
) PARTITION BY HASH (pid);

CREATE TABLE memories (
    pid bytea NOT NULL,
    seq bigint NOT NULL,
    id bytea NOT NULL,
    kind text COLLATE "C" NOT NULL,
    tier text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    role text COLLATE "C" NOT NULL,
    source_class text COLLATE "C" NOT NULL,
    content bytea NOT NULL,
    content_hash bytea NOT NULL,
    language text COLLATE "C" NOT NULL,
    trust double precision NOT NULL,
    confidence double precision NOT NULL,
    importance double precision NOT NULL,
    occurred_at bigint NOT NULL,
    recorded_at bigint NOT NULL,
    valid_from bigint,
    valid_to bigint,
    retired_at bigint,
    expires_at bigint,
    version bigint NOT NULL,
    supersedes bytea,
    superseded_by bytea,
    reason text COLLATE "C",
    agent_id text COLLATE "C",
    session_id text COLLATE "C",
    namespace text COLLATE "C",
    device_id text COLLATE "C",
    metadata bytea,
    previous bigint NOT NULL DEFAULT 0,
    turn bytea,
    start bigint,
    stop bigint,
    rule text COLLATE "C",
    repeats bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (pid, seq),
    UNIQUE (id, pid)
) PARTITION BY HASH (pid);
CREATE UNIQUE INDEX memories_one_of_a_hash ON memories (pid, content_hash)
    WHERE state = 'active';
CREATE INDEX memories_by_session ON memories (pid, session_id, seq) WHERE session_id IS NOT NULL;
CREATE INDEX memories_by_namespace ON memories (pid, namespace) WHERE namespace IS NOT NULL;
CREATE INDEX memories_by_turn ON memories (pid, turn) WHERE turn IS NOT NULL;
CREATE INDEX memories_hidden ON memories (pid, seq) WHERE state <> 'active';
CREATE INDEX memories_expiring ON memories (pid, expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE sources (
    pid bytea NOT NULL,
    seq bigint NOT NULL,
    turn bytea NOT NULL,
    start bigint NOT NULL,
    stop bigint NOT NULL,
    occurred_at bigint NOT NULL,
    session_id text COLLATE "C",
    rule text COLLATE "C" NOT NULL,
    PRIMARY KEY (pid, seq, turn, start)
) PARTITION BY HASH (pid);
CREATE INDEX sources_by_turn ON sources (pid, turn);
CREATE INDEX sources_by_time ON sources (pid, occurred_at);

CREATE TABLE edges (
    pid bytea NOT NULL,
    seq bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    to_seq bigint NOT NULL,
    PRIMARY KEY (pid, seq, kind, to_seq)
) PARTITION BY HASH (pid);
CREATE INDEX edges_back ON edges (pid, to_seq);

CREATE TABLE words (
    pid bytea NOT NULL,
    seq bigint NOT NULL,
    length bigint NOT NULL,
    previous bigint NOT NULL,
    occurred_at bigint NOT NULL,
    trust bigint NOT NULL,
    confidence bigint NOT NULL,
    blob bytea NOT NULL,
    PRIMARY KEY (pid, seq)
) PARTITION BY HASH (pid);

CREATE TABLE models (
    model bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    dimension bigint NOT NULL,
    baseline double precision NOT NULL
);

CREATE TABLE vectors (
    pid bytea NOT NULL,
    vid bigint GENERATED ALWAYS AS IDENTITY,
    model bigint NOT NULL,
    seq bigint NOT NULL,
    sealed smallint NOT NULL DEFAULT 0,
    blob bytea NOT NULL,
    PRIMARY KEY (pid, model, seq)
) PARTITION BY HASH (pid);
CREATE INDEX vectors_tail ON vectors (pid, model, vid) WHERE sealed = 0;

CREATE TABLE segments (
    pid bytea NOT NULL,
    sid bigint GENERATED ALWAYS AS IDENTITY,
    kind text COLLATE "C" NOT NULL,
    model bigint NOT NULL,
    count bigint NOT NULL,
    min_seq bigint NOT NULL,
    max_seq bigint NOT NULL,
    blob bytea NOT NULL,
    PRIMARY KEY (pid, sid)
) PARTITION BY HASH (pid);

-- Background work. lease_until is 0 while nobody has it, else the claimer's token as well.
CREATE TABLE jobs (
    jid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pid bytea NOT NULL,
    kind text COLLATE "C" NOT NULL,
    priority bigint NOT NULL,
    size bigint NOT NULL DEFAULT 1,
    added_at bigint NOT NULL,
    state text COLLATE "C" NOT NULL DEFAULT 'ready',
    attempts bigint NOT NULL DEFAULT 0,
    lease_until bigint NOT NULL DEFAULT 0,
    not_before bigint NOT NULL DEFAULT 0,
    payload bytea NOT NULL,
    last_error text
);
CREATE INDEX jobs_ready ON jobs (priority, jid) WHERE state = 'ready';
CREATE INDEX jobs_by_partition ON jobs (pid);

CREATE TABLE requests (
    pid bytea NOT NULL,
    key text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    outcome bytea NOT NULL,
    PRIMARY KEY (pid, key)
);

CREATE TABLE tombstones (
    pid bytea NOT NULL,
    origin bytea NOT NULL,
    digest bytea NOT NULL,
    forgotten_at bigint NOT NULL,
    PRIMARY KEY (pid, origin)
);

CREATE TABLE forgotten_partitions (
    mark bytea PRIMARY KEY,
    next_seq bigint NOT NULL,
    generation bigint NOT NULL,
    forgotten_at bigint NOT NULL
);

-- Sixteen hash partitions of each large table: smaller indexes, and vacuums side by side.
DO $$
DECLARE
    parent text;
BEGIN
    FOREACH parent IN ARRAY
        ARRAY['turns', 'memories', 'sources', 'edges', 'words', 'vectors', 'segments'] LOOP
        FOR number IN 0..15 LOOP
            EXECUTE format(
                'CREATE TABLE %I PARTITION OF %I FOR VALUES WITH (MODULUS 16, REMAINDER %s)',
                parent || '_' || number, parent, number);
        END LOOP;
    END LOOP;
END
$$;

-- Blobs are packed already: compressing them again costs time and saves nothing.
ALTER TABLE segments ALTER COLUMN blob SET STORAGE EXTERNAL;

-- The settings are read once in a statement, and not for each row: hence the selects.
DO $$
DECLARE
    walled text;
BEGIN
    FOREACH walled IN ARRAY ARRAY['partitions', 'turns', 'memories', 'sources', 'edges', 'words',
        'vectors', 'segments', 'jobs', 'requests', 'tombstones'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', walled);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', walled);
        EXECUTE format($policy$
            CREATE POLICY wall ON %I
            USING (pid = ANY ((SELECT nullif(current_setting('scrubjay.pids', true), '')::bytea[])
                    ::bytea[])
                OR (SELECT current_setting('scrubjay.maintenance', true)) = 'on')
            $policy$, walled);
    END LOOP;
END
$$;

-- The partitions of a search. A function, whose plan is kept, since what asks for it is not.
CREATE FUNCTION look(wanted bytea[])
RETURNS TABLE (pid bytea, next_seq bigint, generation bigint, epoch bigint)
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN QUERY SELECT p.pid, p.next_seq, p.generation, p.epoch FROM partitions p
    WHERE p.pid = ANY (wanted);
END
$$;

-- Which of these ids are another partition's turns or memories: no more than that.
CREATE FUNCTION elsewhere(what text, own bytea, wanted bytea[]) RETURNS SETOF bytea
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM set_config('scrubjay.maintenance', 'on', true);
    IF what = 'turn' THEN
        RETURN QUERY SELECT t.id FROM turns t WHERE t.id = ANY (wanted) AND t.pid <> own;
    ELSE
        RETURN QUERY SELECT m.id FROM memories m WHERE m.id = ANY (wanted) AND m.pid <> own;
    END IF;
    PERFORM set_config('scrubjay.maintenance', '', true);
END
$$;

-- Journals what is new in one round trip: turns, episodes, words, jobs and the idempotency record.
-- Returns `expected` when it is done; the partition's next sequence, with nothing written, when
-- the caller expected another; -1, with nothing written, when the case is not this simple: a new
-- partition, a known idempotency key, or an episode that is there already.
CREATE FUNCTION journal(wall text, own bytea, expected bigint, hashes bytea[], said jsonb,
    said_blobs bytea[], kept jsonb, kept_blobs bytea[], request text, request_digest bytea,
    request_outcome bytea, job_payloads bytea[], job_sizes bigint[], job_priority bigint,
    present bigint, seal_at bigint, seal_payload bytea) RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
    tail bigint;
    each bytea;
BEGIN
    PERFORM set_config('scrubjay.pids', wall, true);
    -- One hash after another: for an array the planner would rather read the whole partition. A
    -- hash that another writer brings from now on fails by the unique index.
    FOREACH each IN ARRAY hashes LOOP
        IF EXISTS (SELECT 1 FROM memories m WHERE m.pid = own AND m.content_hash = each
                AND m.state = 'active') THEN
            RETURN -1;
        END IF;
    END LOOP;
    IF request IS NOT NULL AND EXISTS (SELECT 1 FROM requests r
            WHERE r.pid = own AND r.key = request) THEN
        RETURN -1;
    END IF;
    UPDATE partitions p SET next_seq = expected + cardinality(hashes),
        tail_words = p.tail_words + cardinality(hashes), generation = p.generation + 1
    WHERE p.pid = own AND p.next_seq = expected RETURNING p.tail_words INTO tail;
    IF NOT FOUND THEN
        RETURN coalesce((SELECT p.next_seq FROM partitions p WHERE p.pid = own), -1);
    END IF;
    IF request IS NOT NULL THEN
        INSERT INTO requests (pid, key, digest, outcome)
        VALUES (own, request, request_digest, request_outcome);
    END IF;
    INSERT INTO turns (pid, id, role, source_class, content, occurred_at, recorded_at, agent_id,
        session_id, namespace, device_id, metadata)
    SELECT own, decode(t.id, 'hex'), t.role, t.source_class, said_blobs[2 * t.place - 1],
        t.occurred_at, t.recorded_at, t.agent_id, t.session_id, t.namespace, t.device_id,
        said_blobs[2 * t.place]
    FROM jsonb_to_recordset(said) AS t(place bigint, id text, role text, source_class text,
        occurred_at bigint, recorded_at bigint, agent_id text, session_id text, namespace text,
        device_id text);
    WITH new AS (
        SELECT m.*, expected + m.place - 1 AS seq, CASE
            WHEN m.after > 0 THEN expected + m.after - 1
            WHEN m.session_id IS NULL THEN 0
            ELSE coalesce((SELECT max(o.seq) FROM memories o
                WHERE o.pid = own AND o.session_id = m.session_id), 0) END AS previous
        FROM jsonb_to_recordset(kept) AS m(place bigint, after bigint, id text, kind text,
            tier text, state text, role text, source_class text, language text,
            trust double precision, confidence double precision, importance double precision,
            occurred_at bigint, recorded_at bigint, valid_from bigint, valid_to bigint,
            expires_at bigint, version bigint, agent_id text, session_id text, namespace text,
            device_id text, turn text, start bigint, stop bigint, rule text, length bigint)
    ), written AS (
        INSERT INTO memories (pid, seq, id, kind, tier, state, role, source_class, content,
            content_hash, language, trust, confidence, importance, occurred_at, recorded_at,
            valid_from, valid_to, expires_at, version, agent_id, session_id, namespace, device_id,
            metadata, previous, turn, start, stop, rule)
        SELECT own, n.seq, decode(n.id, 'hex'), n.kind, n.tier, n.state, n.role, n.source_class,
            kept_blobs[3 * n.place - 2], hashes[n.place], n.language, n.trust, n.confidence,
            n.importance, n.occurred_at, n.recorded_at, n.valid_from, n.valid_to, n.expires_at,
            n.version, n.agent_id, n.session_id, n.namespace, n.device_id,
            kept_blobs[3 * n.place - 1], n.previous, decode(n.turn, 'hex'), n.start, n.stop, n.rule
        FROM new n
    )
    INSERT INTO words (pid, seq, length, previous, occurred_at, trust, confidence, blob)
    SELECT own, n.seq, n.length, n.previous, n.occurred_at, round(n.trust * 100),
        round(n.confidence * 100), kept_blobs[3 * n.place] FROM new n;
    INSERT INTO jobs (pid, kind, priority, size, added_at, payload)
    SELECT own, 'embed', job_priority, j.size, present, j.payload
    FROM unnest(job_payloads, job_sizes) AS j(payload, size);
    IF tail >= seal_at THEN
        INSERT INTO jobs (pid, kind, priority, size, added_at, payload)
        SELECT own, 'seal', 5, 1, present, seal_payload WHERE NOT EXISTS (SELECT 1 FROM jobs j
            WHERE j.pid = own AND j.kind = 'seal' AND j.state = 'ready' AND j.lease_until = 0);
    END IF;
    RETURN expected;
END
$$;
