//! Which senders to a group are listened to: what each socket wants, and what an interface tells of
//! all of them together (RFC 3376, section 3.2).

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Senders that are listened to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// All but `sources`; else these alone.
    pub excludes: bool,
    /// In order, without repetition.
    pub sources: Vec<IpAddr>,
}

impl Filter {
    /// Nobody: as good as not listening.
    pub const NOBODY: Self = Self { excludes: false, sources: Vec::new() };
    /// Everybody.
    pub const ALL: Self = Self { excludes: true, sources: Vec::new() };

    /// Whether `source` is heard.
    pub fn admits(&self, source: IpAddr) -> bool {
        self.sources.binary_search(&source).is_ok() != self.excludes
    }

    /// Names one more sender; `false` when it was named already.
    pub fn add(&mut self, source: IpAddr) -> bool {
        match self.sources.binary_search(&source) {
            Ok(_) => false,
            Err(at) => {
                self.sources.insert(at, source);
                true
            }
        }
    }

    /// Names a sender no more; `false` when it was not named.
    pub fn remove(&mut self, source: IpAddr) -> bool {
        match self.sources.binary_search(&source) {
            Ok(at) => {
                self.sources.remove(at);
                true
            }
            Err(_) => false,
        }
    }

    /// Whoever hears anything of any of `wants`.
    //= https://www.rfc-editor.org/rfc/rfc3810#section-4.2
    //# An implementation MUST NOT use an EXCLUDE interface record for a multicast address if all
    //# sockets for this multicast address are in INCLUDE state.
    pub fn merged<'a>(wants: impl Iterator<Item = &'a Filter> + Clone) -> Self {
        let (mut excluders, mut named) = (0, Vec::new());
        for one in wants {
            excluders += usize::from(one.excludes);
            named.extend(one.sources.iter().map(|source| (*source, one.excludes)));
        }
        named.sort_unstable();
        let excludes = excluders > 0;
        let of_one = named.chunk_by(|(one, _), (other, _)| one == other);
        let matters = of_one.filter_map(|all| {
            let excluded = all.iter().filter(|(_, excludes)| *excludes).count();
            // By somebody who names it alone, or who excludes others.
            let heard = excluded < all.len() || excluded < excluders;
            all.first().filter(|_| heard != excludes).map(|(source, _)| *source)
        });
        Self { excludes, sources: matters.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(excludes: bool, last: &[u8]) -> Filter {
        let sources = last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect();
        Filter { excludes, sources }
    }

    //= https://www.rfc-editor.org/rfc/rfc3810#section-4.2
    //= type=test
    //# An implementation MUST NOT use an EXCLUDE interface record for a multicast address if all
    //# sockets for this multicast address are in INCLUDE state.
    #[test]
    fn an_interface_hears_whom_any_socket_hears() {
        for (wants, merged) in [
            (&[][..], Filter::NOBODY),
            (&[filter(false, &[1, 2]), filter(false, &[2, 3])], filter(false, &[1, 2, 3])),
            // RFC 3376, section 3.2: EXCLUDE {a, b, c, d}, EXCLUDE {b, c, d, e}, INCLUDE {d, e, f}.
            (
                &[
                    filter(true, &[1, 2, 3, 4]),
                    filter(true, &[2, 3, 4, 5]),
                    filter(false, &[4, 5, 6]),
                ],
                filter(true, &[2, 3]),
            ),
            (&[filter(true, &[1]), Filter::ALL], Filter::ALL),
            (&[filter(false, &[1]), Filter::ALL], Filter::ALL),
        ] {
            assert_eq!(Filter::merged(wants.iter()), merged, "{wants:?}");
        }
    }

    #[test]
    fn a_filter_admits_whom_it_says() {
        let ip = |last| IpAddr::from([10, 0, 0, last]);
        assert!(Filter::ALL.admits(ip(1)) && !Filter::NOBODY.admits(ip(1)));
        let mut two = filter(true, &[1]);
        assert!(!two.admits(ip(1)) && two.admits(ip(2)));
        assert!(two.add(ip(2)) && !two.add(ip(2)) && !two.admits(ip(2)));
        assert!(two.remove(ip(1)) && !two.remove(ip(1)) && two.admits(ip(1)));
    }
}
