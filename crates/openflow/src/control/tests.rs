use proptest::prelude::*;

use super::*;
use crate::text::hex;

#[test]
fn the_hello_of_open_vswitch_names_its_one_configured_version() {
    // After the header, of a bridge with protocols=OpenFlow15.
    let bytes = hex("0001000800000040");
    let hello = Hello::decode(6, &mut Reader::new(&bytes)).unwrap();
    assert_eq!(hello, Hello::of15());
    assert!(hello.supports(6) && !hello.supports(4) && !hello.supports(200));
}

#[test]
fn a_hello_without_a_list_speaks_all_versions_up_to_its_own() {
    let hello = Hello::decode(4, &mut Reader::new(&[])).unwrap();
    assert!(hello.supports(1) && hello.supports(4) && !hello.supports(6));
}

#[test]
fn the_features_of_open_vswitch_are_read() {
    // From ovs-vswitchd 3.1.0, after the header.
    let bytes = hex("00006eba7da71a4600000000fe0000000000024f00000000");
    let features = Features::decode(&mut Reader::new(&bytes)).unwrap();
    assert_eq!((features.datapath_id, features.n_tables), (0x6eba_7da7_1a46, 254));
    assert!(features.capabilities.contains(Capabilities::BUNDLES | Capabilities::GROUP_STATS));
    assert!(!features.capabilities.contains(Capabilities::FLOW_MONITORING), "it monitors, but does not say so");
    let mut out = Vec::new();
    features.encode(&mut out);
    assert_eq!(out, bytes);
}

#[test]
fn the_default_async_config_of_open_vswitch_is_read() {
    // From ovs-vswitchd 3.1.0, after the header.
    let bytes = hex(concat!(
        "0000000800000000000100080000003b00020008000000070003000800000007",
        "0004000800000000000500080000003f00060008000000000007000800000000",
        "00080008000000000009000800000000000a000800000000000b000800000000",
    ));
    let config = AsyncConfig::decode(&mut Reader::new(&bytes)).unwrap();
    assert_eq!(config.masks.get(&AsyncKind::PacketIn), Some(&0x3b));
    assert_eq!(config.masks.get(&AsyncKind::FlowRemoved), Some(&0x3f));
    assert_eq!(config.secondary.get(&AsyncKind::PortStatus), Some(&7));
    assert_eq!((config.masks.len(), config.secondary.len()), (6, 6));
    assert_eq!(config.unknown, []);
}

#[test]
fn a_role_that_does_not_exist_is_refused() {
    let mut out = Vec::new();
    RoleMessage { role: Role::Secondary, generation: 5 }.encode(&mut out);
    out[3] = 4;
    let error = RoleMessage::decode(&mut Reader::new(&out)).unwrap_err();
    assert_eq!(error, DecodeError::BadValue { what: "role", value: 4 });
}

#[test]
fn bytes_after_a_message_of_fixed_size_are_refused() {
    let error = SwitchConfig::decode(&mut Reader::new(&[0, 0, 0, 0, 9])).unwrap_err();
    assert_eq!(error, DecodeError::BadLength { what: "switch config", length: 5 });
}

fn unknown(kinds: std::ops::Range<u16>) -> impl Strategy<Value = Vec<UnknownProperty>> {
    let property =
        (kinds, prop::collection::vec(any::<u8>(), 0..20)).prop_map(|(kind, value)| UnknownProperty { kind, value });
    prop::collection::vec(property, 0..3)
}

proptest! {
    #[test]
    fn values_survive_encoding_and_decoding(
        versions: Option<u32>, elements in unknown(2..99), role in prop::sample::select(&Role::ALL[..]), n: u64,
        masks in prop::collection::btree_map(prop::sample::select(&AsyncKind::ALL[..]), any::<u32>(), 0..6),
        secondary in prop::collection::btree_map(prop::sample::select(&AsyncKind::ALL[..]), any::<u32>(), 0..6),
        properties in unknown(12..99),
    ) {
        let mut out = Vec::new();
        let hello = Hello { version: 6, versions, unknown: elements };
        hello.encode(&mut out);
        prop_assert_eq!(Hello::decode(6, &mut Reader::new(&out)).unwrap(), hello);

        out.clear();
        let role = RoleMessage { role, generation: n };
        role.encode(&mut out);
        prop_assert_eq!(RoleMessage::decode(&mut Reader::new(&out)).unwrap(), role);

        out.clear();
        let config = AsyncConfig { masks, secondary, unknown: properties };
        config.encode(&mut out);
        prop_assert_eq!(AsyncConfig::decode(&mut Reader::new(&out)).unwrap(), config);
    }
}
