//! Properties of any text that is read as a flow, a part of one, or a meter.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use openflow::action::Action;
use openflow::flow::{EncodedFlow, Flow, FlowFlags, FlowMod};
use openflow::matching::Match;
use openflow::meter::{Meter, MeterMod};
use openflow::wire::Reader;

/// A parsed value prints as a text that parses to the same value, and survives encoding.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Some(flow) = survives_text::<Flow>(&text) {
        survives_the_wire(&flow);
    }
    if let Some(matches) = survives_text::<Match>(&text) {
        survives_the_wire(&Flow::default().when(matches));
    }
    if let Some(action) = survives_text::<Action>(&text) {
        survives_the_wire(&Flow::default().then(action));
    }
    if let Some(meter) = survives_text::<Meter>(&text) {
        let change = MeterMod::Add(meter);
        let mut bytes = Vec::new();
        change.encode(&mut bytes);
        assert_eq!(MeterMod::decode(&mut Reader::new(&bytes)), Ok(change));
    }
}

fn survives_text<T: FromStr<Err: Display> + Display + PartialEq + Debug>(text: &str) -> Option<T> {
    match text.parse::<T>() {
        Ok(value) => {
            let printed = value.to_string();
            match printed.parse::<T>() {
                Ok(again) => assert_eq!(again, value, "{printed}"),
                Err(error) => panic!("{printed}\ndoes not parse: {error}"),
            }
            Some(value)
        }
        Err(error) => {
            let _ = error.to_string();
            None
        }
    }
}

fn survives_the_wire(flow: &Flow) {
    let change = FlowMod::add(flow.clone());
    let mut bytes = Vec::new();
    change.encode(&mut bytes);
    // Values that are too large for a message are rejected when they are sent.
    if bytes.len() > 60_000 {
        return;
    }
    assert_eq!(FlowMod::decode(&mut Reader::new(&bytes)), Ok(change), "{flow}");

    let kept = Flow { flags: flow.flags & FlowFlags::KEPT, ..flow.clone() };
    let encoded = EncodedFlow::new(flow, &mut bytes);
    assert_eq!(encoded.decode(), kept, "{flow}");
    assert_eq!((encoded.table(), encoded.priority(), encoded.cookie()), (flow.table, flow.priority, flow.cookie));
    bytes.clear();
    encoded.put_delete(&mut bytes);
    assert_eq!(FlowMod::decode(&mut Reader::new(&bytes)).map(|delete| delete.flow.matches), Ok(kept.matches));
}
