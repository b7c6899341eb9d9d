//! Options of `gen` and `sink` ports.

use super::PortKind;
use super::impairment::parse_rate;
use super::{PortSpec, SpecError};
use crate::copy::ETHERNET_BYTES;
use crate::station::GENERATED_BYTES_MIN;

impl PortSpec {
    /// Parses one of `size=`, `rate=`, `from=` and `to=`; the error says what to write instead.
    pub(super) fn station_option(&mut self, key: &str, value: &str) -> Result<(), &'static str> {
        let facts = &mut self.station;
        match (self.kind, key) {
            (PortKind::Generator | PortKind::Sink, "rate") => {
                facts.rate_bits =
                    parse_rate(value).map_err(|_| "write bits a second, e.g. rate=100mbit")?;
            }
            (PortKind::Generator, "size") => {
                let bytes =
                    value.parse().map_err(|_| "write the bytes of a frame, e.g. size=60")?;
                facts.frame_bytes = Some(bytes);
            }
            (PortKind::Generator, "from" | "to") => {
                let place = if key == "to" { &mut facts.to } else { &mut facts.from };
                let end = value.parse().ok();
                let why = "write an IPv4 address and a port, e.g. to=10.0.0.2:5001";
                *place = Some(end.ok_or(why)?);
            }
            (PortKind::Sink, _) => return Err("only gen ports have this option; leave it out"),
            _ => return Err("only gen and sink ports have this option; leave it out"),
        }
        Ok(())
    }

    /// Checks that frames fit the port, and that datagrams have both ends.
    pub(super) fn check_station(&self, text: &str) -> Result<(), SpecError> {
        if self.kind != PortKind::Generator {
            return Ok(());
        }
        let most = usize::from(self.mtu.unwrap_or(crate::station::MTU)) + ETHERNET_BYTES;
        if !(GENERATED_BYTES_MIN..=most).contains(&self.station.frame_len()) {
            return Err(SpecError(format!(
                "port \"{text}\": write a size= from {GENERATED_BYTES_MIN} to {most} bytes, or a larger mtu="
            )));
        }
        if self.station.from.is_some() != self.station.to.is_some() {
            return Err(SpecError(format!(
                "port \"{text}\": datagrams have a sender and a receiver; give both from= and to=, or \
                 neither"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_understood() {
        let text =
            "gen:g0,addr=10.0.0.2/24,size=1514,rate=10gbit,from=10.0.0.1:4000,to=10.0.0.2:5001";
        let spec: PortSpec = text.parse().unwrap();
        assert_eq!(spec.label(), "gen:g0");
        assert_eq!(spec.station.frame_bytes, Some(1514));
        assert_eq!(spec.station.rate_bits, 10_000_000_000);
        assert_eq!(spec.station.from, Some("10.0.0.1:4000".parse().unwrap()));
        assert_eq!(spec.station.to, Some("10.0.0.2:5001".parse().unwrap()));
        assert_eq!("sink:s0,rate=1gbit".parse::<PortSpec>().unwrap().kind, PortKind::Sink);
    }

    #[test]
    fn what_cannot_be_made_is_refused_with_what_to_write() {
        for (text, expected) in [
            ("gen:g0,size=53", "from 54 to 1514"),
            ("gen:g0,size=1515", "from 54 to 1514"),
            ("gen:g0,size=some", "size=60"),
            ("gen:g0,rate=fast", "rate=100mbit"),
            ("gen:g0,to=10.0.0.2:5001", "both from= and to="),
            ("gen:g0,to=10.0.0.2", "to=10.0.0.2:5001"),
            ("sink:s0,size=60", "only gen ports"),
            ("tap:ob0,rate=1gbit", "only gen and sink"),
            ("gen:g0,netns=blue", "no namespace"),
        ] {
            let why = text.parse::<PortSpec>().unwrap_err().0;
            assert!(why.contains(expected), "{text}: {why}");
            assert!(why.contains(text), "{why}");
        }
    }
}
