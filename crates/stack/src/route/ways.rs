//! The stated ways through an interface, of which a kernel may have thousands: sorted, so that the
//! longest prefix is found by halving.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::metrics::Metrics;
use crate::api::Destination;

/// A way with the addresses that it is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Way {
    first: u128,
    last: u128,
    prefix: u8,
    gateway: Option<IpAddr>,
    metrics: Metrics,
    /// Place of the next wider one that this one lies in; always a smaller one.
    wider: Option<u32>,
}

/// All ways of an interface, each family's by itself, by their first addresses; of those that
/// begin together the wider one first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Ways([Vec<Way>; 2]);

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl Ways {
    /// Of two to the same network the first counts. Takes little more than a look at each where
    /// they come sorted.
    pub(super) fn new(all: &[Destination]) -> Self {
        let mut ways: [Vec<Way>; 2] = Default::default();
        for way in all {
            let family = usize::from(way.network.is_ipv6());
            let width = [32, 128][family];
            let prefix = way.prefix.min(width);
            let left = u32::from(width - prefix);
            let rest = 1u128.checked_shl(left).map_or(u128::MAX, |size| size - 1);
            let first = bits(way.network) & !rest;
            let Destination { gateway, metrics, .. } = *way;
            let last = first | rest;
            ways[family].push(Way { first, last, prefix, gateway, metrics, wider: None });
        }
        for ways in &mut ways {
            ways.sort_by_key(|way| (way.first, way.prefix));
            ways.dedup_by_key(|way| (way.first, way.prefix));
            let mut around: Vec<u32> = Vec::new();
            for at in 0..ways.len() {
                let first = ways[at].first;
                while around.last().is_some_and(|wider| ways[*wider as usize].last < first) {
                    around.pop();
                }
                ways[at].wider = around.last().copied();
                around.extend(u32::try_from(at).ok());
            }
        }
        Self(ways)
    }

    /// The ways to an address, the longest prefix first: its length, the next hop if it is not the
    /// address itself, and what is known of it.
    pub(super) fn to(
        &self,
        remote: IpAddr,
    ) -> impl Iterator<Item = (u8, Option<IpAddr>, Metrics)> + '_ {
        let ways = &self.0[usize::from(remote.is_ipv6())];
        let remote = bits(remote);
        let mut at = ways.partition_point(|way| way.first <= remote).checked_sub(1);
        std::iter::from_fn(move || {
            while let Some(place) = at {
                let way = ways.get(place)?;
                at = way.wider.map(|wider| wider as usize).filter(|wider| *wider < place);
                if way.last >= remote {
                    return Some((way.prefix, way.gateway, way.metrics));
                }
            }
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::api::Cidr;
    use crate::route::contains;

    /// As many as are kept of a kernel's, drawn from few numbers so that they lie in each other.
    fn many(v6: bool) -> Vec<Destination> {
        let mut random = 7u64;
        let mut draw = move |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        let mut way = || {
            let network = match v6 {
                false => {
                    Ipv4Addr::from([10, draw(4) as u8, draw(256) as u8, draw(256) as u8]).into()
                }
                true => {
                    let [a, b] = [draw(16), draw(1 << 32)];
                    Ipv6Addr::from_bits(0xfd << 120 | u128::from(a) << 60 | u128::from(b)).into()
                }
            };
            let prefix = draw(if v6 { 129 } else { 33 }) as u8;
            let gateway = Some(Ipv4Addr::from_bits(draw(1 << 32) as u32).into());
            let metrics = Metrics { initial_cwnd: draw(100) as u16, ..Metrics::default() };
            Destination { network, prefix, gateway, metrics }
        };
        (0..16 * 1024).map(|_| way()).collect()
    }

    #[test]
    fn of_many_ways_those_with_the_longest_prefixes_come_first() {
        for v6 in [false, true] {
            let all = many(v6);
            let ways = Ways::new(&all);
            for probe in all.iter().step_by(37).chain(&many(!v6)[..8]) {
                let remote = probe.network;
                let network = |way: &&Destination| {
                    contains(&Cidr { address: way.network, prefix: way.prefix }, remote)
                };
                let mut expected: Vec<_> = all.iter().filter(network).collect();
                expected.sort_by_key(|way| std::cmp::Reverse(way.prefix));
                expected.dedup_by_key(|way| way.prefix);
                let expected: Vec<_> =
                    expected.iter().map(|w| (w.prefix, w.gateway, w.metrics)).collect();
                assert_eq!(ways.to(remote).collect::<Vec<_>>(), expected, "{remote}");
            }
        }
    }

    #[test]
    fn a_way_is_found_in_few_steps_among_thousands() {
        // Nothing lies in anything else, and all in one that is wider: the worst that a walk to the
        // next wider one can meet is one step.
        let network = |at: u32| Ipv4Addr::from_bits(0x0a00_0000 + (at << 8)).into();
        let metrics = Metrics::default();
        let way = |at, prefix| Destination { network: network(at), prefix, gateway: None, metrics };
        let all: Vec<_> =
            (0..16 * 1024).map(|at| way(at, 26)).chain([way(0, 8), way(0, 0)]).collect();
        let ways = Ways::new(&all);
        assert_eq!(
            ways.to("10.3.7.200".parse().unwrap()).collect::<Vec<_>>(),
            [(8, None, metrics), (0, None, metrics)]
        );
        let deepest = ways.0[0].iter().map(|way| {
            std::iter::successors(Some(way), |way| Some(&ways.0[0][way.wider? as usize])).count()
        });
        assert_eq!(deepest.max(), Some(3));
    }

    #[test]
    fn a_damaged_table_ends_every_search() {
        let way = |wider| Way {
            first: 0,
            last: 0,
            prefix: 32,
            gateway: None,
            metrics: Metrics::default(),
            wider: Some(wider),
        };
        let ways = Ways([vec![way(0), way(9), way(1)], Vec::new()]);
        assert_eq!(ways.to(Ipv4Addr::LOCALHOST.into()).count(), 0);
    }
}
