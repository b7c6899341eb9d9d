//! The work that the demo has done, and the figures that come out of it.

use std::path::Path;
use std::time::Duration;

use lab::failure::{Failure, Result};
use lab::{Task, Traffic, nginx, parse};

/// A piece of work: a server, a client and what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// redis-benchmark GET, 50 connections.
    RedisGet,
    /// redis-benchmark SET, 50 connections.
    RedisSet,
    /// redis-benchmark GET, 50 connections, 16 requests under way on each.
    RedisGetPipelined,
    /// wrk fetching a file of 612 bytes from nginx, 50 connections.
    NginxSmall,
    /// iperf3, one stream from client to server.
    IperfIn,
    /// iperf3, one stream from server to client.
    IperfOut,
    /// sockperf, 64 bytes there and back on one connection.
    PingPong,
}

/// A figure in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// Rate of GETs.
    GetRate,
    /// The server program's processor time per GET.
    GetProgramCpu,
    /// The server host's whole processor time per GET.
    GetTotalCpu,
    /// Rate of SETs.
    SetRate,
    /// Rate of pipelined GETs.
    PipelinedRate,
    /// Rate of fetches.
    FetchRate,
    /// Bulk towards the server.
    InRate,
    /// The server host's processor time for it.
    InTotalCpu,
    /// Bulk from the server.
    OutRate,
    /// The server host's processor time for it.
    OutTotalCpu,
    /// Median of half a round trip.
    PingP50,
    /// 99th percentile of half a round trip.
    PingP99,
}

impl Metric {
    /// Its name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::GetRate => "redis GET, 50 connections",
            Self::GetProgramCpu => "redis GET, program CPU per request",
            Self::GetTotalCpu => "redis GET, total CPU per request",
            Self::SetRate => "redis SET, 50 connections",
            Self::PipelinedRate => "redis GET, pipelined by 16",
            Self::FetchRate => "nginx small file, wrk, 50 connections",
            Self::InRate => "iperf3 one stream, client to server",
            Self::InTotalCpu => "iperf3 client to server, total CPU",
            Self::OutRate => "iperf3 one stream, server to client",
            Self::OutTotalCpu => "iperf3 server to client, total CPU",
            Self::PingP50 => "ping-pong 64 B, half round trip, p50",
            Self::PingP99 => "ping-pong 64 B, half round trip, p99",
        }
    }

    /// Its unit.
    pub fn unit(self) -> &'static str {
        match self {
            Self::GetRate | Self::SetRate | Self::PipelinedRate | Self::FetchRate => "requests/s",
            Self::GetProgramCpu | Self::GetTotalCpu => "us/request",
            Self::InRate | Self::OutRate => "Gbit/s",
            Self::InTotalCpu | Self::OutTotalCpu => "ms/GB",
            Self::PingP50 | Self::PingP99 => "us",
        }
    }

    /// Whether more is better.
    pub fn higher_is_better(self) -> bool {
        matches!(
            self,
            Self::GetRate
                | Self::SetRate
                | Self::PipelinedRate
                | Self::FetchRate
                | Self::InRate
                | Self::OutRate
        )
    }
}

/// What one run of a client did.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// The main figure, in the unit of the work's first metric.
    pub rate: f64,
    /// Requests or bytes done, to share processor time out over.
    pub operations: f64,
    /// Second figure of works that have one (p99).
    pub second: Option<f64>,
}

impl Work {
    /// All, in the order of the report.
    pub const ALL: [Work; 7] = [
        Self::RedisGet,
        Self::RedisSet,
        Self::RedisGetPipelined,
        Self::NginxSmall,
        Self::IperfIn,
        Self::IperfOut,
        Self::PingPong,
    ];

    /// Short name for progress and for choosing.
    pub fn name(self) -> &'static str {
        match self {
            Self::RedisGet => "redis-get",
            Self::RedisSet => "redis-set",
            Self::RedisGetPipelined => "redis-get-pipelined",
            Self::NginxSmall => "nginx",
            Self::IperfIn => "iperf3-in",
            Self::IperfOut => "iperf3-out",
            Self::PingPong => "ping-pong",
        }
    }

    /// What it measures, the main figure first.
    pub fn metrics(self) -> &'static [Metric] {
        match self {
            Self::RedisGet => &[Metric::GetRate, Metric::GetProgramCpu, Metric::GetTotalCpu],
            Self::RedisSet => &[Metric::SetRate],
            Self::RedisGetPipelined => &[Metric::PipelinedRate],
            Self::NginxSmall => &[Metric::FetchRate],
            Self::IperfIn => &[Metric::InRate, Metric::InTotalCpu],
            Self::IperfOut => &[Metric::OutRate, Metric::OutTotalCpu],
            Self::PingPong => &[Metric::PingP50, Metric::PingP99],
        }
    }

    /// How the links are to be set up for it.
    pub fn traffic(self) -> Traffic {
        match self {
            Self::IperfIn | Self::IperfOut => Traffic::Bulk,
            _ => Traffic::Requests,
        }
    }

    /// How engines poll for it.
    pub fn poll(self) -> &'static str {
        if self == Self::PingPong { "busy" } else { "adaptive" }
    }

    /// Port of its server.
    pub fn port(self) -> u16 {
        match self {
            Self::RedisGet | Self::RedisSet | Self::RedisGetPipelined => 6379,
            Self::NginxSmall => 8080,
            Self::IperfIn | Self::IperfOut => 5201,
            Self::PingPong => 11111,
        }
    }

    /// Its server at `address`, with files in `scratch`.
    pub fn server(self, address: &str, scratch: &Path) -> Result<Task> {
        let port = self.port();
        Ok(match self {
            Self::RedisGet | Self::RedisSet | Self::RedisGetPipelined => Task::new("redis-server")
                .args(["--bind", address, "--protected-mode", "no", "--save", ""])
                .args(["--dir".as_ref(), scratch.as_os_str()]),
            Self::NginxSmall => {
                Task::new("nginx").arg("-c").arg(nginx::configure(address, port, scratch)?)
            }
            Self::IperfIn | Self::IperfOut => {
                Task::words(&format!("iperf3 --server --bind {address} --port {port}"))
            }
            Self::PingPong => Task::words(&format!("sockperf server --tcp -i {address} -p {port}")),
        })
    }

    /// Its client, for `seconds` of load on the server at `address`. `expected` is the rate of an
    /// earlier run, for clients that are told a number of requests.
    pub fn client(self, address: &str, seconds: u32, expected: Option<f64>) -> Task {
        let port = self.port();
        let requests = match expected {
            Some(rate) => (rate * f64::from(seconds)).max(1000.0) as u64,
            None => 20_000,
        };
        let redis = format!("redis-benchmark -h {address} -c 50 -n {requests} --csv");
        Task::words(&match self {
            Self::RedisGet => format!("{redis} -t get"),
            Self::RedisSet => format!("{redis} -t set"),
            Self::RedisGetPipelined => format!("{redis} -t get -P 16"),
            Self::NginxSmall => {
                format!("wrk -t 1 -c 50 -d {seconds}s http://{address}:{port}/index.html")
            }
            Self::IperfIn => format!("iperf3 --client {address} --time {seconds} --json"),
            Self::IperfOut => {
                format!("iperf3 --client {address} --time {seconds} --json --reverse")
            }
            Self::PingPong => {
                format!("sockperf ping-pong --tcp -i {address} -p {port} -m 64 -t {seconds}")
            }
        })
    }

    /// Whether a short run must come first, to learn the rate.
    pub fn calibrates(self) -> bool {
        matches!(self, Self::RedisGet | Self::RedisSet | Self::RedisGetPipelined)
    }

    /// What the client's output says.
    pub fn read(self, output: &str, ran: Duration) -> Result<Done> {
        let plain = |rate: f64| Done { rate, operations: rate * ran.as_secs_f64(), second: None };
        Ok(match self {
            Self::RedisGet | Self::RedisSet | Self::RedisGetPipelined => {
                plain(parse::redis_benchmark(output)?.rate)
            }
            Self::NginxSmall => {
                let result = parse::wrk(output)?;
                if result.errors > 0 {
                    let cause = format!("wrk counted {} errors", result.errors);
                    return Err(Failure::new(cause, "look into nginx's error log"));
                }
                Done { operations: result.requests as f64, ..plain(result.rate) }
            }
            Self::IperfIn | Self::IperfOut => {
                let result = parse::iperf3(output)?;
                let rate = result.bits_per_second / 1e9;
                Done { rate, operations: result.bytes as f64, second: None }
            }
            Self::PingPong => {
                let result = parse::sockperf(output)?;
                let errors = result.dropped + result.disorders;
                if errors > 0 {
                    let cause = format!("sockperf counted {errors} errors");
                    return Err(Failure::new(cause, "run it by hand to see which"));
                }
                let operations = result.received as f64;
                Done { rate: result.p50_us, operations, second: Some(result.p99_us) }
            }
        })
    }
}
