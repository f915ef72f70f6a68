//! The tables of the Open_vSwitch database that are used here, as typed rows.
//!
//! A row type lists its columns once, with the macro `table!`. It gives the columns to monitor, reads rows of a replica, and has a
//! companion (`BridgeColumns` for `Bridge`) that holds just the columns to write.

mod bridge;
mod column;
mod flow_table;
mod interface;
mod open_vswitch;
mod port;
mod views;

use thiserror::Error;

pub use self::bridge::{Bridge, BridgeColumns, FailMode};
pub use self::column::{ColumnValue, Element, IntoColumn};
pub use self::flow_table::{FlowTable, FlowTableColumns};
pub use self::interface::{Interface, InterfaceColumns, OfPort};
pub use self::open_vswitch::{OpenVSwitch, OpenVSwitchColumns};
pub use self::port::{Port, PortColumns};
use crate::monitor::Monitored;
use crate::schema::ColumnType;
use crate::value::{DecodeError, Row, Uuid};

/// A typed row of one table.
pub trait TypedRow: Sized {
    /// Name of the table in the database.
    const TABLE: &'static str;

    /// The columns that are read, and their types.
    fn column_types() -> Vec<(&'static str, ColumnType)>;

    /// Reads a row; fails if a column is missing.
    fn from_row(uuid: Uuid, row: &Row) -> Result<Self, RowError>;
}

/// Columns of one table to write.
pub trait Columns {
    /// Name of the table in the database.
    const TABLE: &'static str;

    /// The columns that were set, and no others.
    fn into_row(self) -> Row;
}

/// A column of a row is missing or has another type than expected.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{table} row {uuid}, column {column}: {source}")]
pub struct RowError {
    /// Name of the table.
    pub table: &'static str,
    /// Id that the database assigned.
    pub uuid: Uuid,
    /// Name of the column.
    pub column: &'static str,
    /// The type error of the column.
    pub source: DecodeError,
}

/// All tables with a type in this module.
pub fn all() -> Monitored {
    Monitored::new().with::<OpenVSwitch>().with::<Bridge>().with::<FlowTable>().with::<Port>().with::<Interface>()
}

/// Declares a row type and its companion for writing: clients write `config` columns, the switch writes `status` columns.
macro_rules! table {
    (
        $(#[$row_doc:meta])*
        $row:ident, $columns:ident, $table:literal;
        config { $($(#[$config_doc:meta])* $config:ident: $config_type:ty = $config_name:literal,)* }
        status { $($(#[$status_doc:meta])* $status:ident: $status_type:ty = $status_name:literal,)* }
    ) => {
        $(#[$row_doc])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $row {
            /// Id that the database assigned.
            pub uuid: $crate::value::Uuid,
            $($(#[$config_doc])* pub $config: $config_type,)*
            $($(#[$status_doc])* pub $status: $status_type,)*
        }

        impl $crate::tables::TypedRow for $row {
            const TABLE: &'static str = $table;

            fn column_types() -> Vec<(&'static str, $crate::schema::ColumnType)> {
                vec![
                    $(($config_name, <$config_type as $crate::tables::ColumnValue>::TYPE),)*
                    $(($status_name, <$status_type as $crate::tables::ColumnValue>::TYPE),)*
                ]
            }

            fn from_row(uuid: $crate::value::Uuid, row: &$crate::value::Row) -> Result<Self, $crate::tables::RowError> {
                Ok(Self {
                    uuid,
                    $($config: $crate::tables::read($table, uuid, row, $config_name)?,)*
                    $($status: $crate::tables::read($table, uuid, row, $status_name)?,)*
                })
            }
        }

        #[doc = concat!("Columns to write to a [`", stringify!($row), "`]: those that are set, and no others.")]
        #[derive(Clone, PartialEq, Eq, Debug, Default)]
        pub struct $columns($crate::value::Row);

        impl $columns {
            $(
                $(#[$config_doc])*
                #[must_use]
                pub fn $config(mut self, value: impl $crate::tables::IntoColumn<$config_type>) -> Self {
                    self.0.insert($config_name.to_owned(), value.into_datum());
                    self
                }
            )*
        }

        impl $crate::tables::Columns for $columns {
            const TABLE: &'static str = $table;

            fn into_row(self) -> $crate::value::Row {
                self.0
            }
        }
    };
}
use table;

/// Reads one column of a row.
fn read<C: ColumnValue>(table: &'static str, uuid: Uuid, row: &Row, column: &'static str) -> Result<C, RowError> {
    let datum = row.get(column).ok_or_else(|| DecodeError::unexpected("a value", &serde_json::Value::Null));
    datum.and_then(C::read).map_err(|source| RowError { table, uuid, column, source })
}

#[cfg(test)]
mod tests;
