//! Meters in the syntax of `ovs-ofctl add-meter` and `dump-meters`.

use std::fmt;
use std::str::FromStr;

use super::{Band, Meter, MeterFlags};
use crate::text::{Item, ParseError, Parsed, Value, dotted_hex, items, wrong};

const FLAGS: [(MeterFlags, &str); 4] = [
    (MeterFlags::KBPS, "kbps"),
    (MeterFlags::PKTPS, "pktps"),
    (MeterFlags::BURST, "burst"),
    (MeterFlags::STATS, "stats"),
];

impl fmt::Display for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "meter={}", self.id)?;
        for (_, name) in FLAGS.iter().filter(|(flag, _)| self.flags.contains(*flag)) {
            write!(f, " {name}")?;
        }
        f.write_str(" bands=")?;
        let with_burst = self.flags.contains(MeterFlags::BURST);
        let mut gap = "";
        for band in &self.bands {
            f.write_str(gap)?;
            gap = " ";
            let (kind, rate, burst) = match band {
                Band::Drop { rate, burst } => ("drop", rate, burst),
                Band::DscpRemark { rate, burst, .. } => ("dscp_remark", rate, burst),
                Band::Unknown { kind, body } => {
                    write!(f, "type={kind:#x}({})", dotted_hex(body))?;
                    continue;
                }
            };
            write!(f, "type={kind} rate={rate}")?;
            if with_burst {
                write!(f, " burst_size={burst}")?;
            }
            if let Band::DscpRemark { prec_level, .. } = band {
                write!(f, " prec_level={prec_level}")?;
            }
        }
        Ok(())
    }
}

/// A band of which not everything has been read yet.
struct Draft<'a> {
    whole: &'a str,
    remark: bool,
    rate: Option<u32>,
    burst: Option<u32>,
    prec_level: Option<u8>,
}

impl<'a> Draft<'a> {
    fn new(item: &Item<'a>) -> Parsed<Self> {
        let remark = match item.text()? {
            "drop" => false,
            "dscp_remark" => true,
            _ => return wrong(item.whole, "is not a band type: drop or dscp_remark"),
        };
        Ok(Draft { whole: item.whole, remark, rate: None, burst: None, prec_level: None })
    }

    fn finish(self, flags: MeterFlags) -> Parsed<Band> {
        let Some(rate) = self.rate.filter(|rate| *rate > 0) else {
            return wrong(self.whole, "the band needs a rate above 0");
        };
        let burst = match (flags.contains(MeterFlags::BURST), self.burst) {
            (true, Some(burst)) if burst > 0 => burst,
            (true, _) => return wrong(self.whole, "the band needs a burst_size above 0, as the meter says `burst`"),
            (false, None) => 0,
            (false, Some(_)) => {
                return wrong(self.whole, "the band has a burst_size, but the meter does not say `burst`");
            }
        };
        match (self.remark, self.prec_level) {
            (false, None) => Ok(Band::Drop { rate, burst }),
            (true, Some(prec_level)) => Ok(Band::DscpRemark { rate, burst, prec_level }),
            (false, Some(_)) => wrong(self.whole, "a drop band has no prec_level"),
            (true, None) => wrong(self.whole, "the band needs a prec_level"),
        }
    }
}

impl FromStr for Meter {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        // `bands=` is the one key whose value holds further keys.
        let Some((head, bands)) = text.split_once("bands=") else {
            return wrong(text, "needs bands=");
        };
        let mut id = None;
        let mut flags = MeterFlags::empty();
        for item in items(head) {
            let item = item?;
            match (item.key, FLAGS.iter().find(|(_, name)| *name == item.key)) {
                ("meter", _) => id = Some(item.text()?.parse()?),
                (_, Some((flag, _))) if item.value == Value::None => flags |= *flag,
                _ => return wrong(item.whole, "is none of meter=, kbps, pktps, burst, stats"),
            }
        }
        let Some(id) = id else {
            return wrong(text, "needs meter=");
        };
        if flags.contains(MeterFlags::KBPS) == flags.contains(MeterFlags::PKTPS) {
            return wrong(text, "needs one of kbps and pktps");
        }

        let mut drafts: Vec<Draft<'_>> = Vec::new();
        for item in items(bands) {
            let item = item?;
            if item.key == "type" {
                drafts.push(Draft::new(&item)?);
                continue;
            }
            let Some(band) = drafts.last_mut() else {
                return wrong(item.whole, "a band starts with type=");
            };
            match item.key {
                "rate" => band.rate = Some(item.int()?),
                "burst_size" => band.burst = Some(item.int()?),
                "prec_level" => band.prec_level = Some(item.int()?),
                _ => return wrong(item.whole, "is none of type=, rate=, burst_size=, prec_level="),
            }
        }
        if drafts.is_empty() {
            return wrong(text, "needs at least one band");
        }
        let bands = drafts.into_iter().map(|band| band.finish(flags)).collect::<Parsed<_>>()?;
        Ok(Meter { id, flags, bands })
    }
}
