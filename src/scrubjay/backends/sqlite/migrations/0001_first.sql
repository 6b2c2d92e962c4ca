-- The schema of a new store. Migrations lead from every older version to this one; a test
-- compares the two. Times are integers, microseconds since 1970 in UTC. Blobs named content,
-- metadata, blob and payload have passed the codec.

CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;

-- One row for all memories of a tenant, subject and visibility owner.
CREATE TABLE partitions (
    pid INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    owner TEXT NOT NULL,
    next_seq INTEGER NOT NULL DEFAULT 1,
    generation INTEGER NOT NULL DEFAULT 1,
    epoch INTEGER NOT NULL DEFAULT 1,
    tail_words INTEGER NOT NULL DEFAULT 0,
    tail_vectors INTEGER NOT NULL DEFAULT 0,
    UNIQUE (tenant, subject, owner)
);

-- The journal. Immutable but for erasing.
CREATE TABLE turns (
    tid INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    pid INTEGER NOT NULL REFERENCES partitions,
    role TEXT NOT NULL,
    source_class TEXT NOT NULL,
    content BLOB NOT NULL,
    occurred_at INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    agent_id TEXT,
    session_id TEXT,
    namespace TEXT,
    device_id TEXT,
    metadata BLOB
);
CREATE INDEX turns_by_partition ON turns (pid, tid);

-- turn, start, stop and rule are a memory's first source, said at its own time in its own session;
-- repeats counts the further ones.
CREATE TABLE memories (
    mid INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    pid INTEGER NOT NULL REFERENCES partitions,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    tier TEXT NOT NULL,
    state TEXT NOT NULL,
    role TEXT NOT NULL,
    source_class TEXT NOT NULL,
    content BLOB NOT NULL,
    content_hash BLOB NOT NULL,
    language TEXT NOT NULL,
    trust REAL NOT NULL,
    confidence REAL NOT NULL,
    importance REAL NOT NULL,
    occurred_at INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    valid_from INTEGER,
    valid_to INTEGER,
    retired_at INTEGER,
    expires_at INTEGER,
    version INTEGER NOT NULL,
    supersedes BLOB,
    superseded_by BLOB,
    reason TEXT,
    agent_id TEXT,
    session_id TEXT,
    namespace TEXT,
    device_id TEXT,
    metadata BLOB,
    previous INTEGER NOT NULL DEFAULT 0,
    turn BLOB,
    start INTEGER,
    stop INTEGER,
    rule TEXT,
    repeats INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX memories_by_seq ON memories (pid, seq);
CREATE UNIQUE INDEX memories_one_of_a_hash ON memories (pid, content_hash)
    WHERE state = 'active';
CREATE INDEX memories_by_session ON memories (pid, session_id, seq) WHERE session_id IS NOT NULL;
CREATE INDEX memories_by_namespace ON memories (pid, namespace) WHERE namespace IS NOT NULL;
CREATE INDEX memories_by_turn ON memories (pid, turn) WHERE turn IS NOT NULL;
CREATE INDEX memories_hidden ON memories (pid, seq) WHERE state <> 'active';
CREATE INDEX memories_expiring ON memories (pid, expires_at) WHERE expires_at IS NOT NULL;

-- Where else a memory was said: which characters of which turn, and when.
CREATE TABLE sources (
    pid INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    turn BLOB NOT NULL,
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    occurred_at INTEGER NOT NULL,
    session_id TEXT,
    rule TEXT NOT NULL,
    PRIMARY KEY (pid, seq, turn, start)
) WITHOUT ROWID;
CREATE INDEX sources_by_turn ON sources (pid, turn);
CREATE INDEX sources_by_time ON sources (pid, occurred_at);

CREATE TABLE edges (
    pid INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    to_seq INTEGER NOT NULL,
    PRIMARY KEY (pid, seq, kind, to_seq)
) WITHOUT ROWID;
CREATE INDEX edges_back ON edges (pid, to_seq);

-- The tail of the word index: memories that no segment holds yet. Trust and confidence are
-- hundredths.
CREATE TABLE words (
    pid INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    length INTEGER NOT NULL,
    previous INTEGER NOT NULL,
    occurred_at INTEGER NOT NULL,
    trust INTEGER NOT NULL,
    confidence INTEGER NOT NULL,
    blob BLOB NOT NULL,
    PRIMARY KEY (pid, seq)
) WITHOUT ROWID;

CREATE TABLE models (
    model INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    dimension INTEGER NOT NULL,
    baseline REAL NOT NULL
);

-- Float vectors; sid is the segment that holds the int8 form, NULL in the tail. Row ids are
-- never used again, so that a reader can ask for what came after one.
CREATE TABLE vectors (
    vid INTEGER PRIMARY KEY AUTOINCREMENT,
    pid INTEGER NOT NULL,
    model INTEGER NOT NULL REFERENCES models,
    seq INTEGER NOT NULL,
    sealed INTEGER NOT NULL DEFAULT 0,
    blob BLOB NOT NULL
);
CREATE UNIQUE INDEX vectors_by_seq ON vectors (pid, model, seq);
CREATE INDEX vectors_tail ON vectors (pid, model, vid) WHERE sealed = 0;

CREATE TABLE segments (
    sid INTEGER PRIMARY KEY AUTOINCREMENT,
    pid INTEGER NOT NULL REFERENCES partitions,
    kind TEXT NOT NULL,
    model INTEGER NOT NULL,
    count INTEGER NOT NULL,
    min_seq INTEGER NOT NULL,
    max_seq INTEGER NOT NULL,
    blob BLOB NOT NULL
);
CREATE INDEX segments_by_partition ON segments (pid, kind, model, min_seq);

-- Background work. lease_until is 0 while nobody has it, else the claimer's token as well.
CREATE TABLE jobs (
    jid INTEGER PRIMARY KEY,
    pid INTEGER NOT NULL REFERENCES partitions,
    kind TEXT NOT NULL,
    priority INTEGER NOT NULL,
    size INTEGER NOT NULL DEFAULT 1,
    added_at INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'ready',
    attempts INTEGER NOT NULL DEFAULT 0,
    lease_until INTEGER NOT NULL DEFAULT 0,
    not_before INTEGER NOT NULL DEFAULT 0,
    payload BLOB NOT NULL,
    last_error TEXT
);
CREATE INDEX jobs_ready ON jobs (priority, jid) WHERE state = 'ready';
CREATE INDEX jobs_sealing ON jobs (pid) WHERE kind = 'seal';
CREATE INDEX jobs_leased ON jobs (pid) WHERE lease_until > 0;

-- Idempotency keys and the outcome each one had.
CREATE TABLE requests (
    pid INTEGER NOT NULL,
    key TEXT NOT NULL,
    digest BLOB NOT NULL,
    outcome BLOB NOT NULL,
    PRIMARY KEY (pid, key)
) WITHOUT ROWID;

-- What was forgotten, so that an older import or a late job does not bring it back.
CREATE TABLE tombstones (
    pid INTEGER NOT NULL,
    origin BLOB NOT NULL,
    digest BLOB NOT NULL,
    forgotten_at INTEGER NOT NULL,
    PRIMARY KEY (pid, origin)
) WITHOUT ROWID;

-- Partitions that were forgotten whole. The mark is a keyed hash: nothing here names a user. What
-- is written there again begins above the old numbers.
CREATE TABLE forgotten_partitions (
    mark BLOB PRIMARY KEY,
    next_seq INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    forgotten_at INTEGER NOT NULL
) WITHOUT ROWID;
