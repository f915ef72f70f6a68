//! Groups in the syntax of ovs-ofctl: output of `dump-groups`, input of `add-groups`.

use std::fmt;
use std::str::FromStr;

use super::{Bucket, Group, GroupType, MAX_GROUP, Selection};
use crate::action::{parse_actions, write_actions};
use crate::field::{Field, parse_masked, write_masked};
use crate::port::Port;
use crate::text::{Item, ParseError, Parsed, Value, dotted_hex, items, parse_dotted_hex, wrong};
use crate::wire::Reader;

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group_id={}", self.id)?;
        if let Some((_, name)) = GroupType::ALL.iter().find(|(t, _)| *t == self.kind) {
            write!(f, ",type={name}")?;
        }
        if let Some(selection) = &self.selection {
            write!(f, "{selection}")?;
        }
        if !self.unknown.is_empty() {
            write!(f, ",unknown={}", dotted_hex(&self.unknown))?;
        }
        for bucket in &self.buckets {
            write!(f, ",{bucket}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ",selection_method={}", self.method)?;
        if self.parameter != 0 {
            write!(f, ",selection_method_param={}", self.parameter)?;
        }
        let mut listed = self.fields.fields().peekable();
        let Some((first, _, mask)) = listed.next() else { return Ok(()) };
        if listed.peek().is_none() && mask == first.full_mask() {
            return write!(f, ",fields={}", first.name());
        }
        f.write_str(",fields(")?;
        for (i, (field, _, mask)) in self.fields.fields().enumerate() {
            write!(f, "{}{}", if i > 0 { "," } else { "" }, field.name())?;
            if mask != field.full_mask() {
                f.write_str("=")?;
                write_masked(f, field, mask, field.full_mask())?;
            }
        }
        f.write_str(")")
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bucket=bucket_id:{}", self.id)?;
        // The default weight is 1 in a select group; buckets of other groups have no weight.
        if let Some(weight) = self.weight.filter(|w| *w != 1) {
            write!(f, ",weight:{weight}")?;
        }
        if let Some(port) = self.watch_port {
            write!(f, ",watch_port:{port}")?;
        }
        if let Some(group) = self.watch_group {
            write!(f, ",watch_group:{group}")?;
        }
        if !self.unknown.is_empty() {
            write!(f, ",unknown:{}", dotted_hex(&self.unknown))?;
        }
        f.write_str(",actions=")?;
        write_actions(f, &self.actions)
    }
}

impl FromStr for Group {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (head, buckets) = match text.find("bucket=") {
            Some(at) => text.split_at(at),
            None => (text, ""),
        };
        let mut group =
            Group { id: 0, kind: GroupType::All, selection: None, buckets: Vec::new(), unknown: Vec::new() };
        let mut selection = Selection::default();
        let (mut id, mut kind) = (None, None);
        for item in items(head) {
            let item = item?;
            match item.key {
                "group_id" => id = Some(item.int_up_to(MAX_GROUP)?),
                "type" => {
                    let name = item.text()?;
                    let name = if name == "ff" { "fast_failover" } else { name };
                    kind = GroupType::ALL.iter().find(|(_, n)| *n == name).map(|(t, _)| *t);
                    if kind.is_none() {
                        return wrong(item.whole, "is none of all, select, indirect, fast_failover");
                    }
                }
                "selection_method" => {
                    let method = item.text()?;
                    if !Selection::is_method(method) {
                        return wrong(item.whole, "needs a name of 1 to 15 letters, digits, - and _");
                    }
                    selection.method = method.to_owned();
                }
                "selection_method_param" => selection.parameter = item.int()?,
                "fields" => parse_fields(item, &mut selection)?,
                "unknown" => {
                    let bytes = parse_dotted_hex(item.text()?)?;
                    match group.read_properties(&mut Reader::new(&bytes)) {
                        Ok(()) if group.unknown == bytes => {}
                        _ => return wrong(item.whole, "is not a property that is unknown"),
                    }
                }
                _ => return wrong(item.whole, "is not a property of a group"),
            }
        }
        group.id = match id {
            Some(id) => id,
            None => return wrong(text, "needs group_id=..."),
        };
        group.kind = match kind {
            Some(kind) => kind,
            None => return wrong(text, "needs type=..."),
        };
        if !selection.method.is_empty() {
            group.selection = Some(selection);
        }
        let mut next_id = 0;
        for bucket in buckets.split("bucket=").skip(1) {
            let bucket = parse_bucket(bucket, next_id, group.kind)?;
            next_id = bucket.id.wrapping_add(1);
            group.buckets.push(bucket);
        }
        Ok(group)
    }
}

fn parse_fields(item: Item<'_>, selection: &mut Selection) -> Parsed<()> {
    for item in items(item.text()?) {
        let item = item?;
        let Some(field) = Field::by_name(item.key) else {
            return wrong(item.key, "is not a field");
        };
        let mask = match item.value {
            Value::None => field.full_mask(),
            _ => parse_masked(field, item.text()?)?.0,
        };
        if mask != field.full_mask() && !field.spec().maskable {
            return wrong(item.whole, format!("{} can only be hashed as a whole", field.name()));
        }
        selection.fields.set(field, mask, mask);
    }
    Ok(())
}

/// One bucket; as ovs-ofctl does, one without a number takes the next, and in a select group one without weight has 1.
fn parse_bucket(text: &str, next_id: u32, kind: GroupType) -> Parsed<Bucket> {
    let mut bucket = Bucket { id: next_id, ..Bucket::default() };
    let mut all = items(text);
    loop {
        let rest = all.rest().trim_start_matches(|c: char| c == ',' || c.is_ascii_whitespace());
        if let Some(actions) = rest.strip_prefix("actions=").or_else(|| rest.strip_prefix("action=")) {
            let (actions, goto) = parse_actions(actions)?;
            if goto.is_some() {
                return wrong(text, "goto_table cannot stand in a bucket");
            }
            bucket.actions = actions;
            break;
        }
        let Some(item) = all.next() else { break };
        let item = item?;
        match item.key {
            "bucket_id" => bucket.id = item.int_up_to(MAX_GROUP)?,
            "weight" => bucket.weight = Some(item.int()?),
            "watch_port" => bucket.watch_port = Some(item.text()?.parse()?).filter(|p| *p != Port::ANY),
            "watch_group" => bucket.watch_group = Some(item.int()?).filter(|g| *g != u32::MAX),
            "unknown" => {
                let bytes = parse_dotted_hex(item.text()?)?;
                let mut probe = Bucket::default();
                match probe.read_properties(&mut Reader::new(&bytes)) {
                    Ok(()) if probe == (Bucket { unknown: bytes.clone(), ..Bucket::default() }) => {
                        bucket.unknown = bytes;
                    }
                    _ => return wrong(item.whole, "is not a property that is unknown"),
                }
            }
            // Actions may stand without `actions=`, as in `bucket=output:1`.
            _ => {
                let at = text.len() - (item.whole.len() + all.rest().len());
                let (actions, goto) = parse_actions(text.get(at..).unwrap_or_default())?;
                if goto.is_some() {
                    return wrong(text, "goto_table cannot stand in a bucket");
                }
                bucket.actions = actions;
                break;
            }
        }
    }
    Ok(bucket.with_weight_for(kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::GroupMod;

    #[test]
    fn groups_print_parse_back_and_survive_the_wire() {
        for text in [
            "group_id=12,type=select,selection_method=dp_hash",
            "group_id=8,type=select,selection_method=dp_hash,\
             bucket=bucket_id:0,weight:100,actions=set_field:0xa0a0002->reg3,set_field:0x1f90/0xffff->reg4,resubmit(,42),\
             bucket=bucket_id:1,weight:100,actions=set_field:0xa0a0102->reg3,set_field:0x1f90/0xffff->reg4,resubmit(,42)",
            "group_id=1,type=all,bucket=bucket_id:0,actions=output:1,bucket=bucket_id:1,actions=drop",
            "group_id=3,type=select,selection_method=hash,fields(ip_src=255.255.0.0,ip_dst),bucket=bucket_id:0,actions=output:1",
            "group_id=4,type=fast_failover,bucket=bucket_id:0,watch_port:1,actions=output:1",
        ] {
            let group: Group = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(group.to_string(), text);
            let mut bytes = Vec::new();
            GroupMod::Add(group.clone()).encode(&mut bytes);
            assert_eq!(GroupMod::decode(&mut Reader::new(&bytes)).unwrap(), GroupMod::Add(group.clone()));
            bytes.clear();
            group.encode_desc(&mut bytes);
            assert_eq!(Group::decode_desc(&mut Reader::new(&bytes)).unwrap(), group);
        }
    }

    #[test]
    fn shorthands_of_ovs_ofctl_are_understood() {
        let short: Group = "group_id=1,type=select,bucket=output:1,bucket=weight:3,actions=output:2".parse().unwrap();
        let long =
            "group_id=1,type=select,bucket=bucket_id:0,actions=output:1,bucket=bucket_id:1,weight:3,actions=output:2";
        assert_eq!(short.to_string(), long);
    }

    #[test]
    fn a_weight_counts_in_a_select_group_only() {
        let of = |text: &str| text.parse::<Group>().unwrap().buckets.remove(0).weight;
        assert_eq!(of("group_id=1,type=select,bucket=output:1"), Some(1));
        assert_eq!(of("group_id=1,type=all,bucket=weight:1,output:1"), None);
    }

    #[test]
    fn wrong_groups_say_what_is_wrong() {
        for (text, problem) in [
            ("type=select", "`type=select`: needs group_id=..."),
            ("group_id=1", "`group_id=1`: needs type=..."),
            ("group_id=1,type=round", "`type=round`: is none of all, select, indirect, fast_failover"),
            (
                "group_id=1,type=select,selection_method=a(b)",
                "`selection_method=a(b)`: needs a name of 1 to 15 letters, digits, - and _",
            ),
            ("group_id=1,type=all,unknown=01.02", "`unknown=01.02`: is not a property that is unknown"),
            ("group_id=1,type=all,bucket=output:1,explode", "`explode`: is not an action this program knows"),
        ] {
            assert_eq!(text.parse::<Group>().unwrap_err().to_string(), problem);
        }
    }
}
