//! Which faults and rare branches runs have hit.

use std::collections::BTreeMap;

/// Names and how often each was hit in one run.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    hits: BTreeMap<String, u64>,
}

impl Coverage {
    /// One more hit.
    pub fn hit(&mut self, name: &str) {
        self.add(name, 1);
    }

    /// So many more.
    pub fn add(&mut self, name: &str, count: u64) {
        if count == 0 {
            return;
        }
        match self.hits.get_mut(name) {
            Some(hits) => *hits += count,
            None => {
                self.hits.insert(name.to_string(), count);
            }
        }
    }

    /// Names that were hit, with how often.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.hits.iter().map(|(name, hits)| (name.as_str(), *hits))
    }
}

/// In how many runs each name was hit.
#[derive(Clone, Debug, Default)]
pub struct Table {
    runs: u64,
    seeds: BTreeMap<String, u64>,
}

impl Table {
    /// Adds a run.
    pub fn add(&mut self, coverage: &Coverage) {
        self.runs += 1;
        for (name, _) in coverage.iter() {
            *self.seeds.entry(name.to_string()).or_default() += 1;
        }
    }

    /// Runs so far.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Names of `expected` that were hit in fewer than `least` runs.
    pub fn rare<'a>(&self, expected: &[&'a str], least: u64) -> Vec<(&'a str, u64)> {
        expected
            .iter()
            .map(|name| (*name, self.seeds.get(*name).copied().unwrap_or(0)))
            .filter(|(_, seeds)| *seeds < least)
            .collect()
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:>7}  of {} seeds hit", "", self.runs)?;
        for (name, seeds) in &self.seeds {
            writeln!(f, "{seeds:>7}  {name}")?;
        }
        Ok(())
    }
}

/// Counters that are of interest of IPv6 by itself.
pub const V6_MARKS: &[&str] = &[
    "reassembled",
    "stack_drops{reason=fragment_timeout}",
    "stack_drops{reason=ndp_conflict}",
    "tcp_timeouts",
    "tcp_fast_recoveries",
    "tcp_duplicates",
    "tcp_out_of_order",
    "tcp_syn_cookies_received",
    "problems",
];

/// Faults and rare branches that a long range of seeds must hit.
pub const REQUIRED: &[&str] = &[
    "fault: loss",
    "fault: duplication",
    "fault: reorder",
    "fault: corruption",
    "fault: link cut",
    "fault: frames held",
    "fault: port full",
    "fault: event lost",
    "fault: engine stalled",
    "fault: clock jump",
    "fault: program killed",
    "fault: scribble",
    "fault: scribbler found out",
    "fault: export and import",
    "adversary: replay",
    "adversary: RST",
    "adversary: SYN",
    "adversary: SYN from nowhere",
    "both sides connect",
    "buffers_exhausted",
    "spans_exhausted",
    "spans_shared",
    "stash_full",
    "tx_held",
    "tx_refused",
    "arp_failures",
    "reassembled",
    "stack_drops{reason=fragment_timeout}",
    "stack_drops{reason=ip_checksum}",
    "stack_drops{reason=tcp_checksum}",
    "stack_drops{reason=tcp_paws}",
    "stack_drops{reason=tcp_bad_ack}",
    "stack_drops{reason=tcp_blind_reset}",
    "stack_drops{reason=tcp_out_of_window}",
    "stack_drops{reason=tcp_syn_queue_full}",
    "stack_drops{reason=tcp_no_room}",
    "tcp_segments_refused",
    "tcp_timeouts",
    "tcp_fast_recoveries",
    "tcp_lost_retransmits",
    "tcp_tail_probes",
    "tcp_tail_probe_repairs",
    "tcp_spurious_timeouts",
    "tcp_undone",
    "tcp_duplicates_reported",
    "tcp_out_of_order",
    "tcp_duplicates",
    "tcp_window_probes",
    "tcp_keepalive_probes",
    "tcp_challenge_acks",
    "tcp_challenges_limited",
    "connects_refused",
    "tcp_time_wait_evictions",
    "tcp_time_wait_reuses",
    "tcp_aborts_on_data",
    "tcp_half_open_evicted",
    "tcp_syn_cookies_sent",
    "tcp_syn_cookies_received",
    "tcp_user_timeouts_sent",
    "tcp_user_timeouts_received",
    "ndp_failures",
    "v6: reassembled",
    "v6: stack_drops{reason=ndp_conflict}",
    "v6: tcp_timeouts",
    "v6: tcp_fast_recoveries",
    "v6: tcp_duplicates",
    "v6: tcp_out_of_order",
    "v6: tcp_syn_cookies_received",
    "v6: problems",
];
