//! Reads what the measuring programs print.

use crate::failure::{Failure, Result};

fn unread(program: &str, output: &str) -> Failure {
    let tail: Vec<&str> = output.lines().rev().take(5).collect();
    let tail = tail.into_iter().rev().collect::<Vec<_>>().join(" | ");
    Failure::new(
        format!("{program} did not print its result; it ended with: {tail}"),
        "run it by hand to see why",
    )
}

/// Result of a run of redis-benchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedisBenchmark {
    /// Requests per second.
    pub rate: f64,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// 99th percentile in microseconds.
    pub p99_us: f64,
}

/// Reads the last line of `redis-benchmark --csv`.
pub fn redis_benchmark(output: &str) -> Result<RedisBenchmark> {
    let read = || {
        let line = output.lines().rev().find(|line| line.starts_with('"'))?;
        let fields: Vec<&str> = line.split(',').map(|field| field.trim_matches('"')).collect();
        let number = |index: usize| fields.get(index)?.parse::<f64>().ok();
        Some(RedisBenchmark {
            rate: number(1)?,
            p50_us: number(4)? * 1e3,
            p99_us: number(6)? * 1e3,
        })
    };
    read().ok_or_else(|| unread("redis-benchmark", output))
}

/// Result of a run of wrk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wrk {
    /// Requests per second.
    pub rate: f64,
    /// Requests in all.
    pub requests: u64,
    /// Connections or requests that failed, and answers that were not 2xx or 3xx.
    pub errors: u64,
}

/// Reads what wrk prints.
pub fn wrk(output: &str) -> Result<Wrk> {
    let after = |label: &str| output.lines().find_map(|line| line.trim().strip_prefix(label));
    let read = || {
        let rate = after("Requests/sec:")?.trim().parse().ok()?;
        let counted = output.lines().find(|line| line.contains(" requests in "))?;
        let requests = counted.split_whitespace().next()?.parse().ok()?;
        let socket_errors: u64 = after("Socket errors:").map_or(0, |line| {
            line.split([' ', ',']).filter_map(|word| word.parse::<u64>().ok()).sum()
        });
        let refused = after("Non-2xx or 3xx responses:")
            .map_or(Some(0), |count| count.trim().parse::<u64>().ok())?;
        Some(Wrk { rate, requests, errors: socket_errors + refused })
    };
    read().ok_or_else(|| unread("wrk", output))
}

/// Result of a run of iperf3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Iperf {
    /// Bits per second that arrived.
    pub bits_per_second: f64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Datagrams lost, in percent (UDP).
    pub lost_percent: Option<f64>,
    /// Segments sent again (TCP), where the sender's host tells.
    pub retransmits: Option<u64>,
}

/// Reads `iperf3 --json`.
pub fn iperf3(output: &str) -> Result<Iperf> {
    let start = output.find('{').ok_or_else(|| unread("iperf3", output))?;
    let mut values =
        serde_json::Deserializer::from_str(&output[start..]).into_iter::<serde_json::Value>();
    let Some(Ok(report)) = values.next() else { return Err(unread("iperf3", output)) };
    if let Some(error) = report.get("error").and_then(|error| error.as_str()) {
        return Err(Failure::new(format!("iperf3 failed: {error}"), "run it by hand to see why"));
    }
    let end = &report["end"];
    let (sum, lost) = match end.get("sum_received") {
        Some(received) if end.get("sum").is_none() => (received, None),
        _ => (&end["sum"], end["sum"]["lost_percent"].as_f64()),
    };
    match (sum["bits_per_second"].as_f64(), sum["bytes"].as_u64()) {
        (Some(bits_per_second), Some(bytes)) => {
            let retransmits = end["sum_sent"]["retransmits"].as_u64();
            Ok(Iperf { bits_per_second, bytes, lost_percent: lost, retransmits })
        }
        _ => Err(unread("iperf3", output)),
    }
}

/// Result of a run of `sockperf ping-pong`. Latencies are half of a round trip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sockperf {
    /// Median in microseconds.
    pub p50_us: f64,
    /// 99th percentile in microseconds.
    pub p99_us: f64,
    /// Messages that came back.
    pub received: u64,
    /// Messages lost.
    pub dropped: u64,
    /// Messages repeated or out of order.
    pub disorders: u64,
}

/// Reads what `sockperf ping-pong` and `sockperf under-load` print.
pub fn sockperf(output: &str) -> Result<Sockperf> {
    let number_after = |label: &str| {
        let rest = &output[output.find(label)? + label.len()..];
        let rest = rest.trim_start_matches([' ', '=']);
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        rest[..end].parse::<f64>().ok()
    };
    let read = || {
        let valid = &output[output.find("[Valid Duration]")?..];
        let received = &valid[valid.find("ReceivedMessages=")? + "ReceivedMessages=".len()..];
        let digits = received.find(|c: char| !c.is_ascii_digit()).unwrap_or(received.len());
        let disorders =
            number_after("# duplicated messages")? + number_after("# out-of-order messages")?;
        Some(Sockperf {
            p50_us: number_after("percentile 50.000")?,
            p99_us: number_after("percentile 99.000")?,
            received: received[..digits].parse().ok()?,
            dropped: number_after("# dropped messages")? as u64,
            disorders: disorders as u64,
        })
    };
    read().ok_or_else(|| unread("sockperf", output))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_benchmark_csv_is_read() {
        let output = "\"test\",\"rps\"\n\"GET\",\"98814.23\",\"0.296\",\"0.064\",\"0.263\",\"0.703\",\"0.767\",\"3.911\"\n";
        let result = redis_benchmark(output).expect("reads");
        assert_eq!(result, RedisBenchmark { rate: 98814.23, p50_us: 263.0, p99_us: 767.0 });
        assert!(redis_benchmark("Could not connect").unwrap_err().cause().contains("connect"));
    }

    #[test]
    fn wrk_errors_are_counted() {
        let output = "  100 requests in 2.00s, 81KB read\n  Socket errors: connect 1, read 2, write 0, timeout 4\n  Non-2xx or 3xx responses: 10\nRequests/sec:   50.5\n";
        assert_eq!(wrk(output).expect("reads"), Wrk { rate: 50.5, requests: 100, errors: 17 });
    }

    #[test]
    fn iperf3_json_is_read_for_tcp_and_udp() {
        let tcp = r#"{"end":{"sum_sent":{"bits_per_second":2.0,"bytes":3,"retransmits":7},"sum_received":{"bits_per_second":1.5,"bytes":2}}}"#;
        let read = iperf3(tcp).expect("reads");
        assert_eq!(read.retransmits, Some(7));
        assert_eq!((read.bits_per_second, read.bytes, read.lost_percent), (1.5, 2, None));
        let udp = r#"{"end":{"sum":{"bits_per_second":9.0,"bytes":8,"lost_percent":0.5},"sum_received":{}}}"#;
        assert_eq!(iperf3(udp).expect("reads").lost_percent, Some(0.5));
        assert!(iperf3(r#"{"error":"refused"}"#).unwrap_err().cause().contains("refused"));
    }

    #[test]
    fn sockperf_percentiles_are_read() {
        let output = "sockperf: [Valid Duration] RunTime=1.450 sec; SentMessages=100; ReceivedMessages=99\nsockperf: # dropped messages = 3; # duplicated messages = 1; # out-of-order messages = 0\nsockperf: ---> percentile 99.000 =   20.5\nsockperf: ---> percentile 50.000 =    7.871\n";
        let read = sockperf(output).expect("reads");
        assert_eq!((read.p50_us, read.p99_us), (7.871, 20.5));
        assert_eq!((read.received, read.dropped, read.disorders), (99, 3, 1));
    }
}
