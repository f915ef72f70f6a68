//! Groups: buckets of actions of which one, or all, are run; and the messages that change and list them.

mod text;

use crate::action::{Action, decode_actions, put_actions};
use crate::matching::Match;
use crate::port::Port;
use crate::wire::{DecodeError, Decoded, Put, Reader};

/// Stands for every group in a delete.
pub const ALL_GROUPS: u32 = 0xffff_fffc;
/// The highest number a group can have.
pub const MAX_GROUP: u32 = 0xffff_ff00;

/// The experimenter of the selection method.
const NETRONOME: u32 = 0x0000_154d;
const EXPERIMENTER_PROPERTY: u16 = 0xffff;
const SELECTION_METHOD: u32 = 1;
const SELECTION_METHOD_LEN: usize = 16;

const WEIGHT: u16 = 0;
const WATCH_PORT: u16 = 1;
const WATCH_GROUP: u16 = 2;

/// Which buckets of a group are executed (OFPGT_*).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum GroupType {
    /// All buckets, each with a copy of the packet.
    All,
    /// One bucket, selected by a hash of the packet and the weights of buckets.
    Select,
    /// The group's single bucket.
    Indirect,
    /// The first live bucket.
    FastFailover,
}

impl GroupType {
    const ALL: &[(GroupType, &str)] = &[
        (GroupType::All, "all"),
        (GroupType::Select, "select"),
        (GroupType::Indirect, "indirect"),
        (GroupType::FastFailover, "fast_failover"),
    ];

    fn from_code(code: u8) -> Decoded<Self> {
        match Self::ALL.get(usize::from(code)) {
            Some((kind, _)) => Ok(*kind),
            None => Err(DecodeError::BadValue { what: "group type", value: u64::from(code) }),
        }
    }
}

/// A group of buckets (`struct ofp_group_mod`, `struct ofp_group_desc`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Group {
    /// Id of the group, used by flows.
    pub id: u32,
    /// Which buckets are run.
    pub kind: GroupType,
    /// How a select group hashes.
    pub selection: Option<Selection>,
    /// The buckets in order; their ids are unique.
    pub buckets: Vec<Bucket>,
    /// Properties that this crate does not know, header and padding included.
    pub unknown: Vec<u8>,
}

/// How a select group chooses.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Selection {
    /// The name of the method: `dp_hash` or `hash`.
    pub method: String,
    /// A parameter of the method.
    pub parameter: u64,
    /// The fields for `hash`; the mask selects bits.
    pub fields: Match,
}

/// A list of actions in a group.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Bucket {
    /// Id of the bucket, unique in the group.
    pub id: u32,
    /// Its share in a select group; decoding fills in OpenFlow's default of 1, and leaves it out in other groups, where 0
    /// and 1 say nothing.
    pub weight: Option<u16>,
    /// It is alive while this port is.
    pub watch_port: Option<Port>,
    /// It is alive while this group is.
    pub watch_group: Option<u32>,
    /// Actions for the bucket's copy of the packet.
    pub actions: Vec<Action>,
    /// Properties that this crate does not know, header included.
    pub unknown: Vec<u8>,
}

impl Group {
    /// A select group that spreads connections by the datapath's own hash of the packet, UDP ports included.
    pub fn select(id: u32, buckets: Vec<Bucket>) -> Self {
        let selection = Some(Selection { method: "dp_hash".to_owned(), ..Selection::default() });
        Self { id, kind: GroupType::Select, selection, buckets, unknown: Vec::new() }
    }

    /// Whether it has parts that this crate does not know; such a group can be reported, but not compared.
    pub fn is_foreign(&self) -> bool {
        let foreign = |bucket: &Bucket| !bucket.unknown.is_empty() || bucket.actions.iter().any(Action::is_foreign);
        !self.unknown.is_empty() || self.buckets.iter().any(foreign)
    }

    fn put_properties(&self, out: &mut Vec<u8>) {
        if let Some(selection) = &self.selection {
            selection.encode(out);
        }
        out.put(&self.unknown);
    }

    fn read_properties(&mut self, reader: &mut Reader<'_>) -> Decoded<()> {
        while !reader.is_empty() {
            let mut whole = *reader;
            let kind = reader.u16("group property")?;
            let length = usize::from(reader.u16("group property length")?);
            let Some(len) = length.checked_sub(4) else {
                return Err(DecodeError::BadLength { what: "group property", length });
            };
            let body = reader.sub(len, "group property")?;
            let padding = ((8 - length % 8) % 8).min(reader.left());
            reader.skip(padding, "group property padding")?;
            match Selection::decode(kind, body)? {
                Some(selection) if self.selection.is_none() => self.selection = Some(selection),
                _ => self.unknown.put(whole.take(length + padding, "group property")?),
            }
        }
        Ok(())
    }
}

impl Selection {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u16(EXPERIMENTER_PROPERTY);
        out.put_u16(0);
        out.put_u32(NETRONOME);
        out.put_u32(SELECTION_METHOD);
        out.put_zeros(4);
        let name = self.method.as_bytes();
        let name = name.get(..SELECTION_METHOD_LEN - 1).unwrap_or(name);
        out.put(name);
        out.put_zeros(SELECTION_METHOD_LEN - name.len());
        out.put_u64(self.parameter);
        for (field, _, mask) in self.fields.fields() {
            // The mask travels in the place of the value.
            field.put_tlv(out, mask, field.full_mask());
        }
        out.patch_len(start + 2, start);
        out.pad8_since(start);
    }

    fn decode(kind: u16, mut body: Reader<'_>) -> Decoded<Option<Self>> {
        if kind != EXPERIMENTER_PROPERTY
            || body.u32("experimenter")? != NETRONOME
            || body.u32("property type")? != SELECTION_METHOD
        {
            return Ok(None);
        }
        body.skip(4, "padding")?;
        let name = body.array::<SELECTION_METHOD_LEN>("selection method")?;
        let parameter = body.u64("selection parameter")?;
        let listed = Match::from_tlvs(body)?;
        let name = name.split(|b| *b == 0).next().unwrap_or_default();
        let Ok(method) = std::str::from_utf8(name) else { return Ok(None) };
        let mut fields = Match::any();
        for (field, mask, _) in listed.fields().filter(|(f, mask, _)| f.spec().maskable || *mask == f.full_mask()) {
            fields.set(field, mask, mask);
        }
        if listed.unknown().next().is_some()
            || !Self::is_method(method)
            || listed.fields().count() != fields.fields().count()
        {
            return Ok(None);
        }
        Ok(Some(Self { method: method.to_owned(), parameter, fields }))
    }
}

impl Selection {
    /// Whether it can be the name of a method, in bytes as in text.
    fn is_method(name: &str) -> bool {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        (1..SELECTION_METHOD_LEN).contains(&name.len()) && name.bytes().all(plain)
    }
}

impl Bucket {
    /// Normalizes a missing or irrelevant weight for this type of group.
    fn with_weight_for(mut self, kind: GroupType) -> Self {
        self.weight = match (kind, self.weight) {
            (GroupType::Select, weight) => weight.or(Some(1)),
            (_, Some(0 | 1)) => None,
            (_, weight) => weight,
        };
        self
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u16(0);
        out.put_u16(0);
        out.put_u32(self.id);
        let actions = out.len();
        put_actions(out, &self.actions);
        out.patch_len(start + 2, actions);
        if let Some(weight) = self.weight {
            out.put_u16(WEIGHT);
            out.put_u16(8);
            out.put_u16(weight);
            out.put_zeros(2);
        }
        for (kind, value) in [(WATCH_PORT, self.watch_port.map(|p| p.0)), (WATCH_GROUP, self.watch_group)] {
            if let Some(value) = value {
                out.put_u16(kind);
                out.put_u16(8);
                out.put_u32(value);
            }
        }
        out.put(&self.unknown);
        out.patch_len(start, start);
    }

    fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let length = usize::from(reader.u16("bucket length")?);
        let actions = usize::from(reader.u16("bucket actions length")?);
        let Some(rest) = length.checked_sub(4) else {
            return Err(DecodeError::BadLength { what: "bucket", length });
        };
        let mut body = reader.sub(rest, "bucket")?;
        let id = body.u32("bucket id")?;
        let actions = decode_actions(&mut body.sub(actions, "bucket actions")?)?;
        let mut bucket = Bucket { id, actions, ..Bucket::default() };
        bucket.read_properties(&mut body)?;
        Ok(bucket)
    }

    fn read_properties(&mut self, body: &mut Reader<'_>) -> Decoded<()> {
        while !body.is_empty() {
            let mut whole = *body;
            let kind = body.u16("bucket property")?;
            let length = usize::from(body.u16("bucket property length")?);
            let Some(len) = length.checked_sub(4) else {
                return Err(DecodeError::BadLength { what: "bucket property", length });
            };
            let mut value = body.sub(len, "bucket property")?;
            match kind {
                WEIGHT => self.weight = Some(value.u16("bucket weight")?),
                WATCH_PORT => self.watch_port = Some(Port(value.u32("watch port")?)).filter(|p| *p != Port::ANY),
                WATCH_GROUP => self.watch_group = Some(value.u32("watch group")?).filter(|g| *g != u32::MAX),
                _ => self.unknown.put(whole.take(length, "bucket property")?),
            }
        }
        Ok(())
    }
}

fn put_buckets(out: &mut Vec<u8>, buckets: &[Bucket]) {
    for bucket in buckets {
        bucket.encode(out);
    }
}

fn read_buckets(mut reader: Reader<'_>, kind: GroupType) -> Decoded<Vec<Bucket>> {
    let mut buckets = Vec::new();
    while !reader.is_empty() {
        buckets.push(Bucket::decode(&mut reader)?.with_weight_for(kind));
    }
    Ok(buckets)
}

/// The bucket that a command refers to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BucketPosition {
    /// OFPG_BUCKET_FIRST: before or at the first bucket.
    First,
    /// OFPG_BUCKET_LAST: after or at the last bucket.
    Last,
    /// OFPG_BUCKET_ALL: all buckets, for removal.
    All,
    /// The bucket with this id.
    Id(u32),
}

impl BucketPosition {
    const FIRST: u32 = 0xffff_fffd;
    const LAST: u32 = 0xffff_fffe;
    const ALL: u32 = 0xffff_ffff;

    fn code(self) -> u32 {
        match self {
            BucketPosition::First => Self::FIRST,
            BucketPosition::Last => Self::LAST,
            BucketPosition::All => Self::ALL,
            BucketPosition::Id(id) => id,
        }
    }

    fn from_code(code: u32) -> Self {
        match code {
            Self::FIRST => BucketPosition::First,
            Self::LAST => BucketPosition::Last,
            Self::ALL => BucketPosition::All,
            id => BucketPosition::Id(id),
        }
    }
}

/// A message that changes groups.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum GroupMod {
    /// Adds a group that is not there.
    Add(Group),
    /// Replaces a group that is there.
    Modify(Group),
    /// Adds the group, in place of the one that may be there.
    AddOrModify(Group),
    /// Removes a group (or all of them: [`ALL_GROUPS`]) and every flow that uses it.
    Delete(u32),
    /// Adds the group's buckets to the one that is there, after the position's bucket (before all for `First`).
    InsertBuckets(Group, BucketPosition),
    /// Removes buckets of the group with this number.
    RemoveBuckets(u32, BucketPosition),
}

const ADD: u16 = 0;
const MODIFY: u16 = 1;
const DELETE: u16 = 2;
const INSERT_BUCKET: u16 = 3;
const REMOVE_BUCKET: u16 = 5;
const ADD_OR_MODIFY: u16 = 0x8000;

impl GroupMod {
    /// Encodes the message body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let bare = |id| Group { id, kind: GroupType::All, selection: None, buckets: Vec::new(), unknown: Vec::new() };
        let storage;
        let (command, group, position) = match self {
            GroupMod::Add(group) => (ADD, group, BucketPosition::All),
            GroupMod::Modify(group) => (MODIFY, group, BucketPosition::All),
            GroupMod::AddOrModify(group) => (ADD_OR_MODIFY, group, BucketPosition::All),
            GroupMod::InsertBuckets(group, position) => (INSERT_BUCKET, group, *position),
            GroupMod::Delete(id) => {
                storage = bare(*id);
                (DELETE, &storage, BucketPosition::All)
            }
            GroupMod::RemoveBuckets(id, position) => {
                storage = bare(*id);
                (REMOVE_BUCKET, &storage, *position)
            }
        };
        out.put_u16(command);
        out.put_u8(group.kind as u8);
        out.put_zeros(1);
        out.put_u32(group.id);
        let length = out.len();
        out.put_u16(0);
        out.put_zeros(2);
        out.put_u32(position.code());
        let buckets = out.len();
        put_buckets(out, &group.buckets);
        out.patch_len(length, buckets);
        group.put_properties(out);
    }

    /// Decodes the message body.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let command = reader.u16("group mod command")?;
        let kind = GroupType::from_code(reader.u8("group type")?)?;
        reader.skip(1, "padding")?;
        let id = reader.u32("group id")?;
        let buckets = usize::from(reader.u16("buckets length")?);
        reader.skip(2, "padding")?;
        let position = BucketPosition::from_code(reader.u32("bucket position")?);
        let buckets = read_buckets(reader.sub(buckets, "buckets")?, kind)?;
        let mut group = Group { id, kind, selection: None, buckets, unknown: Vec::new() };
        group.read_properties(reader)?;
        Ok(match command {
            ADD => GroupMod::Add(group),
            MODIFY => GroupMod::Modify(group),
            ADD_OR_MODIFY => GroupMod::AddOrModify(group),
            DELETE => GroupMod::Delete(id),
            INSERT_BUCKET => GroupMod::InsertBuckets(group, position),
            REMOVE_BUCKET => GroupMod::RemoveBuckets(id, position),
            other => return Err(DecodeError::BadValue { what: "group mod command", value: u64::from(other) }),
        })
    }
}

impl Group {
    /// Appends one entry of the reply that lists groups.
    pub fn encode_desc(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u16(0);
        out.put_u8(self.kind as u8);
        out.put_zeros(1);
        out.put_u32(self.id);
        out.put_u16(0);
        out.put_zeros(6);
        let buckets = out.len();
        put_buckets(out, &self.buckets);
        out.patch_len(start + 8, buckets);
        self.put_properties(out);
        out.patch_len(start, start);
    }

    /// Reads one entry of the reply that lists groups.
    pub fn decode_desc(reader: &mut Reader<'_>) -> Decoded<Self> {
        let length = usize::from(reader.u16("group entry length")?);
        let Some(rest) = length.checked_sub(2) else {
            return Err(DecodeError::BadLength { what: "group entry", length });
        };
        let mut body = reader.sub(rest, "group entry")?;
        let kind = GroupType::from_code(body.u8("group type")?)?;
        body.skip(1, "padding")?;
        let id = body.u32("group id")?;
        let buckets = usize::from(body.u16("buckets length")?);
        body.skip(6, "padding")?;
        let buckets = read_buckets(body.sub(buckets, "buckets")?, kind)?;
        let mut group = Group { id, kind, selection: None, buckets, unknown: Vec::new() };
        group.read_properties(&mut body)?;
        Ok(group)
    }
}
