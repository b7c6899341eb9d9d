//! Every Ethernet interface: what its driver, queues and offloads mean for a port.

use std::fs;
use std::process::Command;

use port::Survey;

use super::super::engine::{carries_default_route, routes};
use super::Check;

/// Checks of all Ethernet interfaces of this network namespace.
pub(super) fn checks() -> Vec<Check> {
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let routes = routes();
    let generic = generic_programs();
    let names = table.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    names
        .filter_map(|name| Some((name, port::survey(name).ok()?)))
        .flat_map(|(name, survey)| {
            let program =
                generic.iter().any(|of| of == name).then(|| generic_program(name, &survey));
            let is_default = carries_default_route(&routes, name);
            of(name, &survey, is_default).into_iter().chain(program)
        })
        .collect()
}

/// Interfaces whose XDP program, whoever's it is, runs in front of the kernel's stack.
fn generic_programs() -> Vec<String> {
    // Without the program that shows it, nothing is known.
    let shown = Command::new("ip").args(["-o", "link", "show"]).output();
    let shown = shown.map(|output| output.stdout).unwrap_or_default();
    generic_programs_in(&String::from_utf8_lossy(&shown))
}

fn generic_programs_in(shown: &str) -> Vec<String> {
    let generic = shown.lines().filter(|line| line.split(' ').any(|word| word == "xdpgeneric"));
    let names = generic.filter_map(|line| line.split(": ").nth(1)?.split('@').next());
    names.map(str::to_owned).collect()
}

fn generic_program(name: &str, survey: &Survey) -> Check {
    let subject = format!("{name}: XDP program");
    if survey.driver.as_deref() == Some("veth") {
        let found = "runs in generic mode, which receives large frames of a veth peer whole";
        return Check::good(subject, found);
    }
    Check::fair(
        subject,
        "runs in generic mode, behind the driver: frames are copied before it sees them",
        "use a driver with native XDP; if the driver has it, leave mode=generic out",
    )
}

/// Receive queues that an xdp port serves.
const QUEUES_SERVED: usize = port::xdp::QUEUES_MAX as usize;

fn of(name: &str, survey: &Survey, is_default: bool) -> Vec<Check> {
    let subject = |what: &str| format!("{name}: {what}");
    let driver = survey.driver.as_deref().unwrap_or("unknown");
    let mut checks = vec![match &survey.note {
        None => Check::good(subject("driver"), format!("{driver}, MTU {}", survey.mtu)),
        Some(note) => Check::fair(
            subject("driver"),
            note.clone(),
            "leave it so, or set mode= and test under load on a machine that may fail",
        ),
    }];
    if let Some(queues) = survey.receive_queues {
        checks.push(match queues {
            0..=1 => Check::good(subject("queues"), "1 receive queue"),
            2..=QUEUES_SERVED => Check::fair(
                subject("queues"),
                format!("{queues} receive queues, all served by the engine's one worker"),
                format!(
                    "with one queue, card and worker use one ring (ethtool -L {name} combined 1); \
                     with several, receive work of other programs stays distributed"
                ),
            ),
            _ => Check::lacking(
                subject("queues"),
                format!("{queues} receive queues, but an xdp port serves only {QUEUES_SERVED}"),
                format!("use fewer: ethtool -L {name} combined {QUEUES_SERVED}"),
            ),
        });
    }
    if survey.has_lro {
        checks.push(Check::fair(
            subject("receive offload"),
            "the card merges segments (LRO); many drivers then accept no XDP program",
            format!("switch it off for an xdp port in native mode: ethtool -K {name} lro off"),
        ));
    }
    if survey.has_tso {
        checks.push(Check::good(
            subject("send offload"),
            "the card segments large frames (TSO), for the kernel and for an xdp port",
        ));
    }
    match &survey.vlan {
        Some(vlan) if survey.strips_vlan => checks.push(Check::lacking(
            subject("VLAN"),
            format!(
                "carries the VLAN interface {vlan} and strips the tags, so no xdp port opens on it"
            ),
            format!(
                "keep the tags if the card can (ethtool -K {name} rxvlan off), remove the VLAN \
                 interface (ip link del {vlan}), or give the engine another interface"
            ),
        )),
        Some(vlan) => {
            let found = format!("carries the VLAN interface {vlan}, whose frames go to the kernel");
            checks.push(Check::good(subject("VLAN"), found));
        }
        None if survey.strips_vlan => {
            checks.push(Check::good(
                subject("VLAN"),
                "no VLAN interface; tagged frames go to the \
             kernel",
            ));
        }
        None => {}
    }
    if is_default {
        checks.push(Check::fair(
            subject("default route"),
            "goes through this interface",
            "start an engine on it with --confirm 60, so that a mistake reverts itself",
        ));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_program_in_generic_mode_is_told_of_by_its_interfaces_name() {
        let shown = "2: a0@if3: <UP> mtu 1500 xdpgeneric qdisc noqueue \\    link/ether 02:00\n\
            3: b0: <UP> mtu 1500 xdp qdisc noqueue \\    link/ether 02:01\n";
        assert_eq!(generic_programs_in(shown), ["a0"]);
        let driver = |name: &str| Survey { driver: Some(name.into()), ..Survey::default() };
        assert_eq!(generic_program("a0", &driver("veth")).verdict, Verdict::Good);
        assert_eq!(generic_program("a0", &driver("e1000")).verdict, Verdict::Fair);
    }

    #[test]
    fn each_finding_of_an_interface_says_what_to_do() {
        let mut survey = Survey {
            driver: Some("e1000".into()),
            mtu: 1500,
            receive_queues: None,
            has_lro: true,
            has_tso: true,
            strips_vlan: true,
            vlan: Some("eth0.5".into()),
            note: Some("the driver e1000 is known to misbehave".into()),
        };
        for queues in [None, Some(1), Some(8), Some(100)] {
            survey.receive_queues = queues;
            let checks = of("eth0", &survey, true);
            for check in &checks {
                assert!(check.subject.starts_with("eth0: "), "{check:?}");
                assert_eq!(check.advice.is_none(), check.verdict == Verdict::Good, "{check:?}");
            }
            assert!(checks.iter().any(|check| check.found.contains("eth0.5")));
        }
        let plain = of("eth0", &Survey::default(), false);
        assert!(plain.iter().all(|check| check.verdict == Verdict::Good), "{plain:?}");
    }
}
