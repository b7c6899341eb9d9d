//! What a person writes: a PORT, faults, a configuration file. Whatever it says, it is understood
//! or refused with a sentence; what was understood is written back as it was meant.

use outboard::config::{self, Flags};
use port::PortSpec;
use port::spec::Impairment;

/// The first byte says which of the three the rest is.
pub fn run(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    match kind % 3 {
        0 => port(text),
        1 => faults(text),
        _ => file(text),
    }
}

fn port(text: &str) {
    match text.parse::<PortSpec>() {
        Ok(spec) => {
            assert!(text.starts_with(&spec.label()));
            if let Some(gateway) = spec.gateway {
                assert!(spec.addresses.iter().any(|own| own.contains(gateway)));
                assert!(spec.addresses.iter().all(|own| own.address != gateway));
            }
        }
        Err(error) => {
            let said = error.to_string();
            assert!(said.contains(text), "the sentence names what was written: {said}");
        }
    }
}

fn faults(text: &str) {
    match text.parse::<Impairment>() {
        // No fault at all has no words.
        Ok(faults) if faults == Impairment::default() => {}
        Ok(faults) => assert_eq!(faults.to_string().parse(), Ok(faults)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn file(text: &str) {
    match config::parse("x.toml", text, &Flags::default()) {
        Ok(settings) => assert!(!settings.ports.is_empty()),
        Err(failure) => {
            let said = failure.to_string();
            assert!(said.contains("x.toml, line ") || said.contains("no port"), "{said}");
        }
    }
}
