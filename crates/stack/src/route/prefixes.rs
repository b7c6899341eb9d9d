//! The static routes of an interface, of which a kernel may have thousands: sorted, so that a binary
//! search finds the longest prefix.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::metrics::Metrics;
use crate::api::Destination;

/// A route, with the addresses that it covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PrefixRoute {
    first: u128,
    last: u128,
    prefix: u8,
    gateway: Option<IpAddr>,
    metrics: Metrics,
    /// Index of the next wider route that contains this one; always smaller than its own.
    wider: Option<u32>,
}

/// All routes of an interface by family, sorted by first address; of those that
/// begin at the same address, the wider one comes first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct PrefixRoutes([Vec<PrefixRoute>; 2]);

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl PrefixRoutes {
    /// Of two routes to the same network the first counts. Sorted input takes linear time.
    pub(super) fn new(all: &[Destination]) -> Self {
        let mut routes: [Vec<PrefixRoute>; 2] = Default::default();
        for route in all {
            let family = usize::from(route.network.is_ipv6());
            let width = [32, 128][family];
            let prefix = route.prefix.min(width);
            let left = u32::from(width - prefix);
            let rest = 1u128.checked_shl(left).map_or(u128::MAX, |size| size - 1);
            let first = bits(route.network) & !rest;
            let Destination { gateway, metrics, .. } = *route;
            let last = first | rest;
            routes[family].push(PrefixRoute { first, last, prefix, gateway, metrics, wider: None });
        }
        for routes in &mut routes {
            routes.sort_by_key(|route| (route.first, route.prefix));
            routes.dedup_by_key(|route| (route.first, route.prefix));
            let mut around: Vec<u32> = Vec::new();
            for at in 0..routes.len() {
                let first = routes[at].first;
                while around.last().is_some_and(|wider| routes[*wider as usize].last < first) {
                    around.pop();
                }
                routes[at].wider = around.last().copied();
                around.extend(u32::try_from(at).ok());
            }
        }
        Self(routes)
    }

    /// The routes to an address, longest prefix first: prefix length, the next hop if it is not the
    /// address itself, and the metrics.
    pub(super) fn to(
        &self,
        remote: IpAddr,
    ) -> impl Iterator<Item = (u8, Option<IpAddr>, Metrics)> + '_ {
        let routes = &self.0[usize::from(remote.is_ipv6())];
        let remote = bits(remote);
        let mut at = routes.partition_point(|route| route.first <= remote).checked_sub(1);
        std::iter::from_fn(move || {
            while let Some(place) = at {
                let route = routes.get(place)?;
                at = route.wider.map(|wider| wider as usize).filter(|wider| *wider < place);
                if route.last >= remote {
                    return Some((route.prefix, route.gateway, route.metrics));
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
        let mut route = || {
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
        (0..16 * 1024).map(|_| route()).collect()
    }

    #[test]
    fn of_many_routes_those_with_the_longest_prefixes_come_first() {
        for v6 in [false, true] {
            let all = many(v6);
            let routes = PrefixRoutes::new(&all);
            for probe in all.iter().step_by(37).chain(&many(!v6)[..8]) {
                let remote = probe.network;
                let network = |route: &&Destination| {
                    contains(&Cidr { address: route.network, prefix: route.prefix }, remote)
                };
                let mut expected: Vec<_> = all.iter().filter(network).collect();
                expected.sort_by_key(|route| std::cmp::Reverse(route.prefix));
                expected.dedup_by_key(|route| route.prefix);
                let expected: Vec<_> =
                    expected.iter().map(|w| (w.prefix, w.gateway, w.metrics)).collect();
                assert_eq!(routes.to(remote).collect::<Vec<_>>(), expected, "{remote}");
            }
        }
    }

    #[test]
    fn a_route_is_found_in_few_steps_among_thousands() {
        // Nothing lies in anything else, and all in one that is wider: the worst that a walk to the
        // next wider one can meet is one step.
        let network = |at: u32| Ipv4Addr::from_bits(0x0a00_0000 + (at << 8)).into();
        let metrics = Metrics::default();
        let route =
            |at, prefix| Destination { network: network(at), prefix, gateway: None, metrics };
        let all: Vec<_> =
            (0..16 * 1024).map(|at| route(at, 26)).chain([route(0, 8), route(0, 0)]).collect();
        let routes = PrefixRoutes::new(&all);
        assert_eq!(
            routes.to("10.3.7.200".parse().unwrap()).collect::<Vec<_>>(),
            [(8, None, metrics), (0, None, metrics)]
        );
        let deepest = routes.0[0].iter().map(|route| {
            std::iter::successors(Some(route), |route| Some(&routes.0[0][route.wider? as usize]))
                .count()
        });
        assert_eq!(deepest.max(), Some(3));
    }

    #[test]
    fn a_damaged_table_ends_every_search() {
        let route = |wider| PrefixRoute {
            first: 0,
            last: 0,
            prefix: 32,
            gateway: None,
            metrics: Metrics::default(),
            wider: Some(wider),
        };
        let routes = PrefixRoutes([vec![route(0), route(9), route(1)], Vec::new()]);
        assert_eq!(routes.to(Ipv4Addr::LOCALHOST.into()).count(), 0);
    }
}
