"""The tables of agents' and trusted controllers' files, as a list of steps from the first version on."""

from __future__ import annotations

__all__ = ["MIGRATIONS"]

# Migration k takes a file from user_version k − 1 to k. Append; never change one that was published.
MIGRATIONS = (
    """
    CREATE TABLE store (
        id INTEGER PRIMARY KEY CHECK (id = 1), kind TEXT NOT NULL, open_at TEXT);
    CREATE TABLE seasons (
        season INTEGER PRIMARY KEY, opened_at TEXT NOT NULL, terms TEXT NOT NULL,
        excluded INTEGER NOT NULL DEFAULT 0, dropped INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE stream (
        id INTEGER PRIMARY KEY CHECK (id = 1), season INTEGER NOT NULL REFERENCES seasons,
        person_key BLOB NOT NULL, state BLOB NOT NULL);
    CREATE TABLE pending (id INTEGER PRIMARY KEY, actions BLOB NOT NULL, rewards BLOB NOT NULL);
    CREATE TABLE people (hash BLOB PRIMARY KEY, records INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE outgoing (
        kind TEXT NOT NULL, season INTEGER NOT NULL REFERENCES seasons, number INTEGER NOT NULL,
        made_at TEXT NOT NULL, size INTEGER NOT NULL, sha256 TEXT NOT NULL, payload BLOB, sent_at TEXT,
        PRIMARY KEY (kind, season, number));
    CREATE INDEX unsent ON outgoing (kind, season, number) WHERE sent_at IS NULL;
    CREATE TABLE received (
        season INTEGER NOT NULL REFERENCES seasons, agent TEXT NOT NULL, number INTEGER NOT NULL,
        received_at TEXT NOT NULL, sha256 TEXT NOT NULL, payload BLOB,
        PRIMARY KEY (season, agent, number));
    CREATE TRIGGER a_release_stays BEFORE DELETE ON outgoing
        BEGIN SELECT RAISE(ABORT, 'what may have left is never deleted'); END;
    CREATE TRIGGER its_name_is_final BEFORE UPDATE OF kind, season, number, made_at, size, sha256 ON outgoing
        BEGIN SELECT RAISE(ABORT, 'what may have left is never changed'); END;
    CREATE TRIGGER its_content_is_final BEFORE UPDATE OF payload ON outgoing
        WHEN NEW.payload IS NOT OLD.payload AND NOT (OLD.kind = 'upload' AND NEW.payload IS NULL)
        BEGIN SELECT RAISE(ABORT, 'what may have left is never changed'); END;
    """,
    # Groups: a state each, and what waits or left says its own. What was there before is of group 0.
    """
    CREATE TABLE open_season (
        id INTEGER PRIMARY KEY CHECK (id = 1), season INTEGER NOT NULL REFERENCES seasons,
        person_key BLOB NOT NULL);
    CREATE TABLE streams ("group" INTEGER PRIMARY KEY, state BLOB NOT NULL);
    INSERT INTO open_season SELECT id, season, person_key FROM stream;
    INSERT INTO streams SELECT 0, state FROM stream;
    DROP TABLE stream;
    ALTER TABLE pending ADD COLUMN "group" INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE outgoing RENAME TO outgoing_1;
    CREATE TABLE outgoing (
        kind TEXT NOT NULL, season INTEGER NOT NULL REFERENCES seasons, "group" INTEGER NOT NULL,
        number INTEGER NOT NULL, made_at TEXT NOT NULL, size INTEGER NOT NULL, sha256 TEXT NOT NULL,
        payload BLOB, sent_at TEXT, PRIMARY KEY (kind, season, "group", number));
    INSERT INTO outgoing
        SELECT kind, season, 0, number, made_at, size, sha256, payload, sent_at FROM outgoing_1;
    DROP TABLE outgoing_1;
    CREATE INDEX unsent ON outgoing (kind, season, number, "group") WHERE sent_at IS NULL;
    CREATE TRIGGER a_release_stays BEFORE DELETE ON outgoing
        BEGIN SELECT RAISE(ABORT, 'what may have left is never deleted'); END;
    CREATE TRIGGER its_name_is_final
        BEFORE UPDATE OF kind, season, "group", number, made_at, size, sha256 ON outgoing
        BEGIN SELECT RAISE(ABORT, 'what may have left is never changed'); END;
    CREATE TRIGGER its_content_is_final BEFORE UPDATE OF payload ON outgoing
        WHEN NEW.payload IS NOT OLD.payload AND NOT (OLD.kind = 'upload' AND NEW.payload IS NULL)
        BEGIN SELECT RAISE(ABORT, 'what may have left is never changed'); END;
    """,
    # A deployed agent: its settings, decisions until they are in the statistics, sums it acts on, counters.
    # A batch may now also wait as sums, without the records it came from.
    """
    ALTER TABLE seasons ADD COLUMN continued_elsewhere INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE batches ("group" INTEGER PRIMARY KEY, sums BLOB NOT NULL);
    CREATE TABLE settings (
        id INTEGER PRIMARY KEY CHECK (id = 1), season INTEGER NOT NULL REFERENCES seasons, body TEXT NOT NULL,
        started_at REAL NOT NULL, id_key BLOB NOT NULL);
    CREATE TABLE decisions (
        number INTEGER PRIMARY KEY, tag BLOB NOT NULL, id BLOB, state INTEGER NOT NULL,
        closes_at INTEGER NOT NULL, "group" INTEGER NOT NULL, decided_at INTEGER, person BLOB, action BLOB,
        candidates INTEGER, features BLOB, chosen INTEGER, preferred INTEGER, propensity REAL, model INTEGER,
        reward REAL, batch INTEGER);
    CREATE INDEX by_closing ON decisions (state, closes_at);
    CREATE UNIQUE INDEX by_id ON decisions (id) WHERE id IS NOT NULL;
    CREATE TABLE inbox (
        "group" INTEGER PRIMARY KEY, season INTEGER NOT NULL, number INTEGER NOT NULL,
        received_at TEXT NOT NULL, payload BLOB NOT NULL);
    CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE activity (
        hour INTEGER PRIMARY KEY, decisions INTEGER NOT NULL DEFAULT 0, rewards INTEGER NOT NULL DEFAULT 0,
        reward_sum REAL NOT NULL DEFAULT 0);
    CREATE TABLE loaded (sha256 TEXT PRIMARY KEY, loaded_at TEXT NOT NULL, records INTEGER NOT NULL);
    """,
    # What decisions were worth over time, as sums a step of so many seconds (agent/curve.py).
    """
    CREATE TABLE curve (
        width INTEGER NOT NULL, start INTEGER NOT NULL, decisions INTEGER NOT NULL, rewards INTEGER NOT NULL,
        settled INTEGER NOT NULL, value REAL NOT NULL, value_square REAL NOT NULL,
        uniform_chance REAL NOT NULL, weight REAL NOT NULL, weighted REAL NOT NULL,
        weight_square REAL NOT NULL, weighted_square REAL NOT NULL, weighted_square_square REAL NOT NULL,
        PRIMARY KEY (width, start)) WITHOUT ROWID;
    """,
    # Rewards that were refused for being out of range, as a noisy tally a batch (privacy/tally.py); what an
    # agent warns of (agent/warning.py).
    """
    ALTER TABLE decisions ADD COLUMN refused INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE tallies (
        "group" INTEGER NOT NULL, number INTEGER NOT NULL, exact INTEGER, noisy INTEGER,
        PRIMARY KEY ("group", number)) WITHOUT ROWID;
    CREATE TABLE warnings (kind TEXT PRIMARY KEY, since TEXT NOT NULL) WITHOUT ROWID;
    """,
    # The newest release that has a record of a person. Before there was this, records were not spaced.
    """
    ALTER TABLE people ADD COLUMN last INTEGER NOT NULL DEFAULT 0;
    """,
    # Secure sums: an agent's keys of the open season, keepers' cards, and rows that are over. On a graph, the
    # row that waits for others' nonces, and what members said for the row that is next.
    """
    CREATE TABLE secrets (
        id INTEGER PRIMARY KEY CHECK (id = 1), private BLOB NOT NULL, secret BLOB NOT NULL,
        halted TEXT NOT NULL DEFAULT '');
    CREATE TABLE cards (keeper TEXT PRIMARY KEY, public BLOB NOT NULL, signature BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE opened (
        season INTEGER NOT NULL REFERENCES seasons, "group" INTEGER NOT NULL, row INTEGER NOT NULL,
        attempt INTEGER NOT NULL, agents INTEGER NOT NULL, refused TEXT NOT NULL, listed INTEGER NOT NULL,
        PRIMARY KEY (season, "group", row, attempt)) WITHOUT ROWID;
    CREATE TABLE settled ("group" INTEGER PRIMARY KEY, hidden BLOB NOT NULL);
    CREATE TABLE said (
        "group" INTEGER NOT NULL, kind TEXT NOT NULL, agent TEXT NOT NULL, message BLOB NOT NULL,
        PRIMARY KEY ("group", kind, agent)) WITHOUT ROWID;
    """,
    # Own play: what own records come to, by part (storage/own_sums.py).
    """
    CREATE TABLE own (
        part TEXT PRIMARY KEY, records INTEGER NOT NULL, sums TEXT NOT NULL, since INTEGER,
        sha256 BLOB NOT NULL) WITHOUT ROWID;
    """,
    # What an application said of a visitor, where a recipe makes the vectors: content, like the vectors.
    """
    ALTER TABLE decisions ADD COLUMN said TEXT;
    """,
    # What each sum of the open season told when it was read: made of released sums alone (agent/learnt.py).
    """
    CREATE TABLE learnt (
        "group" INTEGER NOT NULL, number INTEGER NOT NULL, read_at REAL NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY ("group", number)) WITHOUT ROWID;
    """,
    # Sums that outlive their season: the last of each group, or all where records fade; with the settings
    # that say how they are read (agent/remembered.py).
    """
    CREATE TABLE remembered (
        season INTEGER NOT NULL, "group" INTEGER NOT NULL, number INTEGER NOT NULL, payload BLOB NOT NULL,
        body TEXT NOT NULL, started_at REAL NOT NULL, PRIMARY KEY (season, "group", number)) WITHOUT ROWID;
    """,
    # Which lane a visitor was drawn into, and what lanes came to in the open season (agent/gain.py).
    """
    ALTER TABLE decisions ADD COLUMN lane INTEGER;
    CREATE TABLE gain (id INTEGER PRIMARY KEY CHECK (id = 1), body TEXT NOT NULL);
    """,
    # Who changed what, and with which key (storage/operator_log.py); where the chain of hashes ends.
    """
    CREATE TABLE operator_log (
        number INTEGER PRIMARY KEY, at TEXT NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL,
        details TEXT NOT NULL, hash TEXT NOT NULL);
    CREATE TABLE operator_log_end (
        id INTEGER PRIMARY KEY CHECK (id = 1), number INTEGER NOT NULL, hash TEXT NOT NULL);
    CREATE TRIGGER an_entry_stays BEFORE DELETE ON operator_log
        BEGIN SELECT RAISE(ABORT, 'the operator log is only added to'); END;
    CREATE TRIGGER an_entry_is_final BEFORE UPDATE ON operator_log
        BEGIN SELECT RAISE(ABORT, 'the operator log is only added to'); END;
    """,
    # Seasons roll by the clock: keys of earlier seasons' person hashes, while somebody may be found by one;
    # the season whose batch a decision entered; and who has decisions that are open.
    """
    CREATE TABLE person_keys (season INTEGER PRIMARY KEY, key BLOB NOT NULL);
    ALTER TABLE decisions ADD COLUMN season INTEGER;
    UPDATE decisions SET season = (SELECT season FROM open_season) WHERE batch IS NOT NULL;
    CREATE INDEX by_person ON decisions (person) WHERE state = 0 AND person IS NOT NULL;
    """,
    # A newcomer is told sums of seasons that it was not in: their terms, and from which season on it reads
    # them. Of own seasons both are empty.
    """
    ALTER TABLE remembered ADD COLUMN terms TEXT;
    ALTER TABLE remembered ADD COLUMN since INTEGER;
    """,
    # How far own rewards scatter. Of records from before it is not known.
    """
    ALTER TABLE own ADD COLUMN squares TEXT;
    """,
)
