//! Monitors of tables: `monitor_cond_since`, its reply, and the notification `update3`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::condition::Condition;
use crate::rpc::Notification;
use crate::schema::{ColumnType, DatabaseSchema};
use crate::tables::TypedRow;
use crate::value::{DecodeError, Decoded, Row, Uuid, decode_row, encode_row, object};

/// Name of the method that starts a monitor.
pub const MONITOR_COND_SINCE: &str = "monitor_cond_since";

/// Name of the method that ends a monitor; its only parameter is the monitor's id.
pub const MONITOR_CANCEL: &str = "monitor_cancel";

/// The tables, columns and rows to monitor.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Monitored {
    tables: BTreeMap<String, MonitoredTable>,
}

/// The columns and rows of a table to monitor.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MonitoredTable {
    columns: BTreeMap<String, ColumnType>,
    conditions: Option<Vec<Condition>>,
}

/// The reply to `monitor_cond_since`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MonitorReply {
    /// Whether the server still knew the requested transaction: `updates` are the changes since then, else all rows.
    pub found: bool,
    /// The transaction after the updates.
    pub last: Uuid,
    /// The changes, or all rows.
    pub updates: TableUpdates,
}

/// The notification `update3`: changed rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Update {
    /// The id that the monitor was started with.
    pub monitor: Value,
    /// The transaction that made the change.
    pub last: Uuid,
    /// The changed rows, by table.
    pub updates: TableUpdates,
}

/// A notification of the server about a monitor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MonitorNotice {
    /// Rows of monitored tables changed.
    Update(Update),
    /// The monitor ended, as its database is removed or converted to another schema.
    Cancelled {
        /// The id that the monitor was started with.
        monitor: Value,
    },
}

/// Changes by table and row.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableUpdates(pub BTreeMap<String, BTreeMap<Uuid, RowUpdate>>);

/// The change of one row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RowUpdate {
    /// The row existed before the monitor; columns with their default value are omitted.
    Initial(Row),
    /// The row is new; columns with their default value are omitted.
    Insert(Row),
    /// Only these columns changed; see [`ColumnType::modify`] for what their values mean.
    Modify(Row),
    /// The row was deleted.
    Delete,
}

impl Monitored {
    /// Monitors no table yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a table, with all columns of its type.
    #[must_use]
    pub fn with<T: TypedRow>(self) -> Self {
        let columns = T::column_types().into_iter().map(|(column, of)| (column.to_owned(), of)).collect();
        self.with_table(T::TABLE, MonitoredTable { columns, conditions: None })
    }

    /// Adds a table, with selected columns and rows.
    #[must_use]
    pub fn with_table(mut self, table: &str, monitored: MonitoredTable) -> Self {
        self.tables.insert(table.to_owned(), monitored);
        self
    }

    /// The monitored tables, by name.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &MonitoredTable)> {
        self.tables.iter().map(|(table, monitored)| (table.as_str(), monitored))
    }

    /// The monitored table with this name.
    pub fn table(&self, table: &str) -> Option<&MonitoredTable> {
        self.tables.get(table)
    }

    /// The tables and columns that are missing in the schema or have another type there, as `table` or `table.column`.
    pub fn missing_from(&self, schema: &DatabaseSchema) -> Vec<String> {
        let mut missing = vec![];
        for (table, monitored) in &self.tables {
            let Some(columns) = schema.tables.get(table) else {
                missing.push(table.clone());
                continue;
            };
            let fits = |column: &str, of: &ColumnType| columns.get(column).is_some_and(|server| of.reads(*server));
            let unfit = monitored.columns.iter().filter(|(column, of)| !fits(column, of));
            missing.extend(unfit.map(|(column, _)| format!("{table}.{column}")));
        }
        missing
    }

    /// The params of a `monitor_cond_since` request that resumes after transaction `last`; [`Uuid::NIL`] requests all rows.
    pub fn encode(&self, database: &str, monitor: &Value, last: Uuid) -> Vec<Value> {
        let tables: serde_json::Map<_, _> =
            self.tables.iter().map(|(table, monitored)| (table.clone(), monitored.encode())).collect();
        vec![database.into(), monitor.clone(), tables.into(), last.to_string().into()]
    }
}

impl MonitoredTable {
    /// Monitors these columns of all rows.
    pub fn new<'a>(columns: impl IntoIterator<Item = (&'a str, ColumnType)>) -> Self {
        let columns = columns.into_iter().map(|(column, of)| (column.to_owned(), of)).collect();
        Self { columns, conditions: None }
    }

    /// Monitors only the rows that meet at least one of the conditions.
    #[must_use]
    pub fn any_of(self, conditions: impl IntoIterator<Item = Condition>) -> Self {
        Self { conditions: Some(conditions.into_iter().collect()), ..self }
    }

    /// The monitored columns and their types.
    pub fn columns(&self) -> &BTreeMap<String, ColumnType> {
        &self.columns
    }

    fn encode(&self) -> Value {
        let columns: Vec<_> = self.columns.keys().collect();
        match self.conditions.as_deref() {
            None => json!([{"columns": columns}]),
            // Without a condition the server would select every row.
            Some([]) => json!([{"columns": columns, "where": [false]}]),
            Some(tests) => {
                json!([{"columns": columns, "where": tests.iter().map(Condition::encode).collect::<Value>()}])
            }
        }
    }
}

impl MonitorReply {
    /// Decodes the result of `monitor_cond_since`.
    pub fn decode(value: &Value) -> Decoded<Self> {
        let Some([Value::Bool(found), last, updates]) = value.as_array().map(Vec::as_slice) else {
            return Err(DecodeError::unexpected("[found, last transaction, updates]", value));
        };
        Ok(Self { found: *found, last: transaction_id(last)?, updates: TableUpdates::decode(updates)? })
    }

    /// Encodes the reply as JSON.
    pub fn encode(&self) -> Value {
        json!([self.found, self.last.to_string(), self.updates.encode()])
    }
}

impl Update {
    /// Decodes the params of `update3`.
    pub fn decode(params: &[Value]) -> Decoded<Self> {
        let [monitor, last, updates] = params else {
            return Err(DecodeError::unexpected("[monitor, last transaction, updates]", &params.into()));
        };
        let (last, updates) = (transaction_id(last)?, TableUpdates::decode(updates)?);
        Ok(Self { monitor: monitor.clone(), last, updates })
    }

    /// Encodes the update as a notification.
    pub fn encode(&self) -> Notification {
        let params = vec![self.monitor.clone(), self.last.to_string().into(), self.updates.encode()];
        Notification { method: "update3".to_owned(), params }
    }
}

impl MonitorNotice {
    /// Decodes a notification; `None` if it is not about monitors.
    pub fn decode(notification: &Notification) -> Decoded<Option<Self>> {
        match (notification.method.as_str(), notification.params.as_slice()) {
            ("update3", params) => Update::decode(params).map(|update| Some(Self::Update(update))),
            ("monitor_canceled", [monitor]) => Ok(Some(Self::Cancelled { monitor: monitor.clone() })),
            ("monitor_canceled", params) => Err(DecodeError::unexpected("[monitor]", &params.into())),
            _ => Ok(None),
        }
    }
}

impl TableUpdates {
    /// Decodes changes by table and row.
    pub fn decode(value: &Value) -> Decoded<Self> {
        let mut tables = BTreeMap::new();
        for (table, value) in object(value)? {
            let mut rows = BTreeMap::new();
            for (uuid, value) in object(value).map_err(|error| error.at(table))? {
                let place = format_args!("{table} {uuid}");
                let key = uuid.parse().map_err(|_| DecodeError::unexpected("a row UUID", &uuid.as_str().into()))?;
                let update = RowUpdate::decode(value).map_err(|error| error.at(place))?;
                if rows.insert(key, update).is_some() {
                    return Err(DecodeError::Duplicate(uuid.clone()).at(table));
                }
            }
            tables.insert(table.clone(), rows);
        }
        Ok(Self(tables))
    }

    /// Encodes the changes as JSON.
    pub fn encode(&self) -> Value {
        let rows = |rows: &BTreeMap<Uuid, RowUpdate>| -> Value {
            rows.iter().map(|(uuid, row)| (uuid.to_string(), row.encode())).collect::<serde_json::Map<_, _>>().into()
        };
        self.0.iter().map(|(table, updates)| (table.clone(), rows(updates))).collect::<serde_json::Map<_, _>>().into()
    }
}

impl RowUpdate {
    fn decode(value: &Value) -> Decoded<Self> {
        let mut members = object(value)?.iter();
        let (Some((kind, row)), None) = (members.next(), members.next()) else {
            return Err(DecodeError::unexpected("one kind of change", value));
        };
        match (kind.as_str(), row) {
            ("initial", row) => decode_row(row).map(Self::Initial),
            ("insert", row) => decode_row(row).map(Self::Insert),
            ("modify", row) => decode_row(row).map(Self::Modify),
            ("delete", _) => Ok(Self::Delete),
            _ => Err(DecodeError::unexpected("a kind of change", value)),
        }
    }

    fn encode(&self) -> Value {
        match self {
            Self::Initial(row) => json!({"initial": encode_row(row)}),
            Self::Insert(row) => json!({"insert": encode_row(row)}),
            Self::Modify(row) => json!({"modify": encode_row(row)}),
            Self::Delete => json!({"delete": null}),
        }
    }
}

/// The params of a `monitor_cancel` request.
pub fn encode_cancel(monitor: &Value) -> Vec<Value> {
    vec![monitor.clone()]
}

fn transaction_id(value: &Value) -> Decoded<Uuid> {
    let id = value.as_str().and_then(|text| text.parse().ok());
    id.ok_or_else(|| DecodeError::unexpected("a transaction id", value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::AtomType;
    use crate::value::Datum;

    fn names() -> MonitoredTable {
        MonitoredTable::new([("name", ColumnType::scalar(AtomType::String))])
    }

    #[test]
    fn the_request_names_tables_columns_and_rows() {
        let monitored = Monitored::new()
            .with_table("Port", names())
            .with_table("Bridge", names().any_of([Condition::equal("name", "a")]))
            .with_table("QoS", names().any_of([]));
        assert_eq!(
            monitored.encode("db", &json!("m"), Uuid::NIL),
            [
                json!("db"),
                json!("m"),
                json!({
                    "Bridge": [{"columns": ["name"], "where": [["name", "==", "a"]]}],
                    "Port": [{"columns": ["name"]}],
                    "QoS": [{"columns": ["name"], "where": [false]}],
                }),
                json!(Uuid::NIL.to_string()),
            ]
        );
        assert_eq!(encode_cancel(&json!("m")), [json!("m")]);
    }

    #[test]
    fn updates_survive_decode_and_encode() {
        let (a, b) = (Uuid::from_bits(1).to_string(), Uuid::from_bits(2).to_string());
        let updates = json!({"Bridge": {a.clone(): {"insert": {"name": "x"}}, b.clone(): {"delete": null}},
            "Port": {a.clone(): {"initial": {}}, b: {"modify": {"tag": ["set", []]}}}});
        let reply = json!([true, a, updates]);
        let decoded = MonitorReply::decode(&reply).unwrap();
        assert_eq!(decoded.encode(), reply);
        let modify = &decoded.updates.0["Port"][&Uuid::from_bits(2)];
        assert_eq!(modify, &RowUpdate::Modify(Row::from([("tag".to_owned(), Datum::EMPTY)])));
        let update = Update::decode(&[json!("m"), json!(a), updates]).unwrap();
        let notice = MonitorNotice::decode(&update.encode()).unwrap();
        assert_eq!(notice, Some(MonitorNotice::Update(update)));
    }

    #[test]
    fn a_malformed_update_is_rejected_with_its_place() {
        let id = Uuid::NIL.to_string();
        for value in [
            json!([1, id, {}]),
            json!([true, "x", {}]),
            json!([true, id, []]),
            json!([true, id, {"T": {"x": {"delete": null}}}]),
            json!([true, id, {"T": {id.clone(): {}}}]),
            json!([true, id, {"T": {id.clone(): {"new": {}}}}]),
        ] {
            assert!(MonitorReply::decode(&value).is_err(), "{value}");
        }
        let error = MonitorReply::decode(&json!([true, id, {"T": {id.clone(): {"insert": {"c": null}}}}])).unwrap_err();
        assert_eq!(error.to_string(), format!("T {id}: c: expected an atom, found null"));
    }

    #[test]
    fn columns_that_the_server_does_not_have_are_reported() {
        let schema = DatabaseSchema::decode(&json!({"tables": {"Bridge": {"columns": {"name": {"type": "integer"}}}}}));
        let monitored = Monitored::new().with_table("Bridge", names()).with_table("Port", names());
        assert_eq!(monitored.missing_from(&schema.unwrap()), ["Bridge.name", "Port"]);
    }
}
