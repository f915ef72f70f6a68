use proptest::prelude::*;

use super::*;
use crate::text::hex;

#[test]
fn a_meter_is_written_as_ovs_ofctl_reads_it() {
    let meter = Meter::drop_pktps(MeterId(1), 100, 50);
    assert_eq!(meter.to_string(), "meter=1 pktps burst stats bands=type=drop rate=100 burst_size=50");
    assert_eq!(meter.to_string().parse(), Ok(meter));
}

#[test]
fn a_meter_is_read_as_dump_meters_writes_it() {
    let text = "meter=controller kbps bands=\ntype=drop rate=10\ntype=dscp_remark rate=5 prec_level=2\n";
    let meter: Meter = text.parse().unwrap();
    let bands = vec![Band::Drop { rate: 10, burst: 0 }, Band::DscpRemark { rate: 5, burst: 0, prec_level: 2 }];
    assert_eq!(meter, Meter { id: MeterId::CONTROLLER, flags: MeterFlags::KBPS, bands });
}

#[test]
fn errors_name_what_is_wrong() {
    for (text, error) in [
        ("meter=1 pktps", "`meter=1 pktps`: needs bands="),
        (
            "meter=1 pktps kbps bands=type=drop rate=1",
            "`meter=1 pktps kbps bands=type=drop rate=1`: needs one of kbps and pktps",
        ),
        ("meter=1 pktps bands=type=drop", "`type=drop`: the band needs a rate above 0"),
        (
            "meter=0 pktps bands=type=drop rate=1",
            "`0`: is neither a meter number from 1 to 4294901760 nor controller, slowpath or all",
        ),
        ("meter=1 pktps bands=rate=1", "`rate=1`: a band starts with type="),
        (
            "meter=1 pktps burst bands=type=drop rate=1",
            "`type=drop`: the band needs a burst_size above 0, as the meter says `burst`",
        ),
        ("meter=1 fast bands=type=drop rate=1", "`fast`: is none of meter=, kbps, pktps, burst, stats"),
    ] {
        assert_eq!(text.parse::<Meter>().unwrap_err().to_string(), error, "{text}");
    }
}

#[test]
fn the_meters_of_open_vswitch_are_read() {
    // One entry each of a meter config and a meter stats reply of ovs-vswitchd 3.1.0.
    let config = hex("0018000e0000000100010010000000640000003200000000");
    let meter = Meter::decode_config(&mut Reader::new(&config)).unwrap();
    assert_eq!(meter, Meter::drop_pktps(MeterId(1), 100, 50));
    let mut out = Vec::new();
    meter.encode_config(&mut out);
    assert_eq!(out, config);

    let stats = hex(concat!(
        "000000010038000000000000000000000000000000000000",
        "000000000000000000000001001e8480",
        "00000000000000000000000000000000",
    ));
    let decoded = MeterStats::decode(&mut Reader::new(&stats)).unwrap();
    assert_eq!(decoded.duration, Duration::from_millis(1002));
    assert_eq!(decoded.bands, [Counter::default()]);
    out.clear();
    decoded.encode(&mut out);
    assert_eq!(out, stats);
}

#[test]
fn a_band_that_is_not_known_keeps_its_bytes() {
    let config = hex("0014000100000007ffff000c00000001000023");
    assert!(Meter::decode_config(&mut Reader::new(&config)).is_err(), "cut short");
    let config = hex("0014000100000007ffff000c0000000100002320");
    let meter = Meter::decode_config(&mut Reader::new(&config)).unwrap();
    assert_eq!(meter.bands, [Band::Unknown { kind: 0xffff, body: hex("0000000100002320") }]);
    let mut out = Vec::new();
    meter.encode_config(&mut out);
    assert_eq!(out, config);
}

fn meters() -> impl Strategy<Value = Meter> {
    let band = (1u32.., 1u32.., prop::option::of(any::<u8>()));
    (1u32..=MeterId::MAX.0, any::<bool>(), any::<bool>(), any::<bool>(), prop::collection::vec(band, 1..4)).prop_map(
        |(id, kbps, burst, stats, bands)| {
            let mut flags = if kbps { MeterFlags::KBPS } else { MeterFlags::PKTPS };
            flags.set(MeterFlags::BURST, burst);
            flags.set(MeterFlags::STATS, stats);
            let bands = bands.into_iter().map(|(rate, size, level)| {
                let burst = if burst { size } else { 0 };
                match level {
                    None => Band::Drop { rate, burst },
                    Some(prec_level) => Band::DscpRemark { rate, burst, prec_level },
                }
            });
            Meter { id: MeterId(id), flags, bands: bands.collect() }
        },
    )
}

proptest! {
    #[test]
    fn a_meter_survives_bytes_and_text(meter in meters()) {
        prop_assert_eq!(meter.to_string().parse::<Meter>().unwrap(), meter.clone());
        for change in [MeterMod::Add(meter.clone()), MeterMod::Modify(meter.clone()), MeterMod::Delete(meter.id)] {
            let mut out = Vec::new();
            change.encode(&mut out);
            prop_assert_eq!(MeterMod::decode(&mut Reader::new(&out)).unwrap(), change);
        }
    }
}
