//! A copy of the monitored tables that follows the server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thiserror::Error;

use crate::monitor::{MonitorReply, Monitored, MonitoredTable, RowUpdate, TableUpdates, Update};
use crate::value::{DecodeError, Decoded, Row, Uuid};

/// The monitored tables as of one transaction.
///
/// Rows always have every monitored column. A clone shares its rows with the original, so it is a cheap snapshot.
#[derive(Clone, Debug)]
pub struct Replica {
    monitored: Arc<Monitored>,
    tables: BTreeMap<String, Arc<Table>>,
    last: Uuid,
}

/// The change of one row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Name of the table.
    pub table: String,
    /// Id of the row.
    pub uuid: Uuid,
    /// The row before the change; `None` if it is new.
    pub before: Option<Arc<Row>>,
    /// The row after the change; `None` if it was deleted.
    pub after: Option<Arc<Row>>,
}

/// Why an update cannot be applied; the replica stays unchanged. Call [`Replica::forget_position`] and start
/// a new monitor.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ReplicaError {
    /// The server sent a table that is not monitored.
    #[error("update of table {0}, which is not monitored")]
    UnknownTable(String),
    /// The server modified a row that it never sent.
    #[error("update of {table} row {uuid}, which does not exist")]
    UnknownRow {
        /// Name of the table.
        table: String,
        /// Id of the row.
        uuid: Uuid,
    },
    /// A value does not have the type of its column.
    #[error("update of {table} row {uuid}: {source}")]
    BadRow {
        /// Name of the table.
        table: String,
        /// Id of the row.
        uuid: Uuid,
        /// The type error, with the column.
        source: DecodeError,
    },
}

#[derive(Clone, Debug, Default)]
struct Table {
    rows: BTreeMap<Uuid, Arc<Row>>,
    /// Rows by the value of their `name` column, in the tables that have one.
    names: BTreeMap<String, BTreeSet<Uuid>>,
}

/// The rows after an update; `None` for deleted ones.
type Staged = BTreeMap<String, BTreeMap<Uuid, Option<Arc<Row>>>>;

impl Replica {
    /// An empty replica of the tables to monitor.
    pub fn new(monitored: impl Into<Arc<Monitored>>) -> Self {
        let monitored = monitored.into();
        let tables = monitored.tables().map(|(table, _)| (table.to_owned(), Arc::default())).collect();
        Self { monitored, tables, last: Uuid::NIL }
    }

    /// The monitored tables and columns.
    pub fn monitored(&self) -> &Monitored {
        &self.monitored
    }

    /// The transaction to resume after: the last one seen, or [`Uuid::NIL`].
    pub fn last_transaction(&self) -> Uuid {
        self.last
    }

    /// Makes the next monitor request all rows, as those of the replica may be wrong.
    pub fn forget_position(&mut self) {
        self.last = Uuid::NIL;
    }

    /// Applies the reply to `monitor_cond_since` and returns the changed rows, by table and id.
    ///
    /// If the server did not know the last transaction, rows that are not in the reply were deleted.
    pub fn apply_reply(&mut self, reply: MonitorReply) -> Result<Vec<Change>, ReplicaError> {
        let staged = if reply.found {
            self.stage(reply.updates)?
        } else {
            let mut staged = Self::new(self.monitored.clone()).stage(reply.updates)?;
            for (table, old) in &self.tables {
                let rows = staged.entry(table.clone()).or_default();
                for uuid in old.rows.keys() {
                    rows.entry(*uuid).or_insert(None);
                }
            }
            staged
        };
        self.last = reply.last;
        Ok(self.commit(staged))
    }

    /// Applies an `update3` and returns the changed rows, by table and id.
    pub fn apply_update(&mut self, update: Update) -> Result<Vec<Change>, ReplicaError> {
        let staged = self.stage(update.updates)?;
        self.last = update.last;
        Ok(self.commit(staged))
    }

    /// The rows of a table by id.
    pub fn rows(&self, table: &str) -> impl Iterator<Item = (Uuid, &Arc<Row>)> {
        self.tables.get(table).into_iter().flat_map(|table| &table.rows).map(|(uuid, row)| (*uuid, row))
    }

    /// The row with this id.
    pub fn row(&self, table: &str, uuid: Uuid) -> Option<&Arc<Row>> {
        self.tables.get(table)?.rows.get(&uuid)
    }

    /// The row with this `name`; the one with the lowest id where the schema lets rows share names.
    pub fn row_named(&self, table: &str, name: &str) -> Option<(Uuid, &Arc<Row>)> {
        let table = self.tables.get(table)?;
        let uuid = *table.names.get(name)?.first()?;
        Some((uuid, table.rows.get(&uuid)?))
    }

    /// The number of rows in all tables.
    pub fn len(&self) -> usize {
        self.tables.values().map(|table| table.rows.len()).sum()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every row as an insertion, for a reader without any rows.
    pub fn as_changes(&self) -> Vec<Change> {
        Self::new(self.monitored.clone()).changes_to(self)
    }

    /// The changes from this replica to another one of the same tables.
    pub fn changes_to(&self, other: &Self) -> Vec<Change> {
        let mut changes = vec![];
        for (name, new) in &other.tables {
            let old = self.tables.get(name).cloned().unwrap_or_default();
            if Arc::ptr_eq(&old, new) {
                continue;
            }
            let uuids: BTreeSet<Uuid> = old.rows.keys().chain(new.rows.keys()).copied().collect();
            for uuid in uuids {
                let (before, after) = (old.rows.get(&uuid).cloned(), new.rows.get(&uuid).cloned());
                if before != after {
                    changes.push(Change { table: name.clone(), uuid, before, after });
                }
            }
        }
        changes
    }

    fn stage(&self, updates: TableUpdates) -> Result<Staged, ReplicaError> {
        let mut staged = Staged::new();
        for (table, rows) in updates.0 {
            let Some(monitored) = self.monitored.table(&table) else {
                return Err(ReplicaError::UnknownTable(table));
            };
            let into = staged.entry(table.clone()).or_default();
            for (uuid, update) in rows {
                let row = match (update, self.row(&table, uuid)) {
                    (RowUpdate::Initial(row) | RowUpdate::Insert(row), _) => complete(monitored, row).map(Some),
                    (RowUpdate::Modify(change), Some(old)) => modify(monitored, old, change).map(Some),
                    (RowUpdate::Modify(_), None) => return Err(ReplicaError::UnknownRow { table, uuid }),
                    (RowUpdate::Delete, _) => Ok(None),
                };
                let row = row.map_err(|source| ReplicaError::BadRow { table: table.clone(), uuid, source })?;
                into.insert(uuid, row.map(Arc::new));
            }
        }
        Ok(staged)
    }

    fn commit(&mut self, staged: Staged) -> Vec<Change> {
        let mut changes = vec![];
        for (name, rows) in staged {
            let table = self.tables.entry(name.clone()).or_default();
            let differ = |(uuid, row): &(Uuid, Option<Arc<Row>>)| table.rows.get(uuid) != row.as_ref();
            let rows: Vec<_> = rows.into_iter().filter(differ).collect();
            if rows.is_empty() {
                continue;
            }
            let table = Arc::make_mut(table);
            for (uuid, after) in rows {
                let before = table.remove(uuid);
                if let Some(row) = &after {
                    table.insert(uuid, row.clone());
                }
                changes.push(Change { table: name.clone(), uuid, before, after });
            }
        }
        changes
    }
}

/// Two replicas are equal if they have the same rows, whatever their history.
impl PartialEq for Replica {
    fn eq(&self, other: &Self) -> bool {
        let rows = self.tables.iter().map(|(name, table)| (name, &table.rows));
        rows.eq(other.tables.iter().map(|(name, table)| (name, &table.rows)))
    }
}

impl Eq for Replica {}

impl Table {
    fn remove(&mut self, uuid: Uuid) -> Option<Arc<Row>> {
        let row = self.rows.remove(&uuid)?;
        if let Some(name) = name_of(&row)
            && let Some(uuids) = self.names.get_mut(name)
        {
            uuids.remove(&uuid);
            if uuids.is_empty() {
                self.names.remove(name);
            }
        }
        Some(row)
    }

    fn insert(&mut self, uuid: Uuid, row: Arc<Row>) {
        if let Some(name) = name_of(&row) {
            self.names.entry(name.to_owned()).or_default().insert(uuid);
        }
        self.rows.insert(uuid, row);
    }
}

fn name_of(row: &Row) -> Option<&str> {
    row.get("name")?.as_str()
}

/// The row with the columns that the server omitted because they have their default.
fn complete(monitored: &MonitoredTable, mut row: Row) -> Decoded<Row> {
    let mut complete = Row::new();
    for (column, of) in monitored.columns() {
        let datum = match row.remove(column) {
            Some(datum) => of.coerce(datum).map_err(|error| error.at(column))?,
            None => of.default_datum(),
        };
        complete.insert(column.clone(), datum);
    }
    match row.first_key_value() {
        Some((column, datum)) => Err(DecodeError::unexpected("a monitored column", &datum.encode()).at(column)),
        None => Ok(complete),
    }
}

fn modify(monitored: &MonitoredTable, old: &Row, change: Row) -> Decoded<Row> {
    let mut row = old.clone();
    for (column, datum) in change {
        let (Some(of), Some(value)) = (monitored.columns().get(&column), row.get_mut(&column)) else {
            return Err(DecodeError::unexpected("a monitored column", &datum.encode()).at(column));
        };
        let change = of.coerce(datum).map_err(|error| error.at(&column))?;
        let old = std::mem::replace(value, of.default_datum());
        *value = of.modify(old, change);
    }
    Ok(row)
}

#[cfg(test)]
mod tests;
