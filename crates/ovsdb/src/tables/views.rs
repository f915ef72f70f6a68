//! Typed rows of a replica.

use super::{Bridge, Interface, OpenVSwitch, Port, RowError, TypedRow};
use crate::replica::{Change, Replica};
use crate::value::{Row, Uuid};

impl Replica {
    /// The row with this id.
    pub fn get<T: TypedRow>(&self, uuid: Uuid) -> Result<Option<T>, RowError> {
        self.row(T::TABLE, uuid).map(|row| T::from_row(uuid, row)).transpose()
    }

    /// The row with this name, in the tables whose rows have one.
    pub fn named<T: TypedRow>(&self, name: &str) -> Result<Option<T>, RowError> {
        self.row_named(T::TABLE, name).map(|(uuid, row)| T::from_row(uuid, row)).transpose()
    }

    /// All rows of a table, by id.
    pub fn all<T: TypedRow>(&self) -> impl Iterator<Item = Result<T, RowError>> {
        self.rows(T::TABLE).map(|(uuid, row)| T::from_row(uuid, row))
    }

    /// The one row of table `Open_vSwitch`; `None` in a database without it.
    pub fn open_vswitch(&self) -> Result<Option<OpenVSwitch>, RowError> {
        self.all().next().transpose()
    }

    /// The ports of a bridge, by id.
    pub fn ports_of(&self, bridge: &Bridge) -> Result<Vec<Port>, RowError> {
        bridge.ports.iter().filter_map(|uuid| self.get(*uuid).transpose()).collect()
    }

    /// The interfaces of a port, by id.
    pub fn interfaces_of(&self, port: &Port) -> Result<Vec<Interface>, RowError> {
        port.interfaces.iter().filter_map(|uuid| self.get(*uuid).transpose()).collect()
    }
}

impl Change {
    /// Whether the row is of this table.
    pub fn is_of<T: TypedRow>(&self) -> bool {
        self.table == T::TABLE
    }

    /// The row before the change; `None` if it is new or of another table.
    pub fn read_before<T: TypedRow>(&self) -> Result<Option<T>, RowError> {
        self.read(self.before.as_deref())
    }

    /// The row after the change; `None` if it was deleted or is of another table.
    pub fn read_after<T: TypedRow>(&self) -> Result<Option<T>, RowError> {
        self.read(self.after.as_deref())
    }

    fn read<T: TypedRow>(&self, row: Option<&Row>) -> Result<Option<T>, RowError> {
        row.filter(|_| self.is_of::<T>()).map(|row| T::from_row(self.uuid, row)).transpose()
    }
}
