//! PostgreSQL: its postmaster accepts, and a child serves. pgbouncer, a pool of connections to it.

use std::fs;
use std::path::PathBuf;

use lab::failure::{Explain, Failure, Result};
use lab::{Program, Side, Task};
use rustix::process::Signal;

use super::pages::until;
use super::{beside, directory, shell};
use crate::joined::{Joined, PATIENCE, SERVER};

const PORT: u16 = 5432;

/// Where the distribution has the programs that are not for everybody.
fn binaries() -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql");
    let versions = versions.explain("PostgreSQL is not installed", "run scripts/setup programs")?;
    let found = versions.flatten().map(|version| version.path().join("bin"));
    let found = found.filter(|bin| bin.join("postgres").is_file()).max();
    found.ok_or_else(|| Failure::new("PostgreSQL is not installed", "run scripts/setup programs"))
}

/// What runs a program as the owner of the data.
const AS_OWNER: &str = "setpriv --reuid postgres --regid postgres --clear-groups";

/// A server with fresh data on host B.
fn started(joined: &Joined) -> Result<Program> {
    let (bin, data) = (binaries()?, directory(joined, "postgres", "postgres")?);
    let (bin, shown) = (bin.display(), data.display());
    shell(
        joined,
        Side::B,
        &format!(
            "{AS_OWNER} {bin}/initdb -D {shown}/data -A trust --no-sync --no-locale -E UTF8 >/dev/null\n\
             echo 'host all all 0.0.0.0/0 trust' >>{shown}/data/pg_hba.conf"
        ),
    )?;
    let server = Task::words(&format!(
        "{AS_OWNER} {bin}/postgres -D {shown}/data -p {PORT} -c listen_addresses={SERVER} \
         -c unix_socket_directories={shown} -c max_connections=200 -c fsync=off"
    ));
    Ok(joined.serve_accelerated(server, PORT))
}

/// The transactions that pgbench says it has done; none may have failed.
fn transactions(said: &str) -> Result<String> {
    let field = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next().map(str::to_owned))
    };
    if field("number of failed transactions:").as_deref() != Some("0") {
        return Err(Failure::new(format!("transactions failed: {said}"), ""));
    }
    let done = field("number of transactions actually processed:").unwrap_or_default();
    if done == "0" {
        return Err(Failure::new(format!("no transaction was processed: {said}"), ""));
    }
    Ok(done)
}

/// pgbench with 50 connections, then with a connection for each transaction; a table goes out and in.
pub(super) fn postgresql(joined: &Joined, seconds: u32) -> Result<String> {
    let server = started(joined)?;
    let client = format!("-h {SERVER} -p {PORT} -U postgres");
    let database = "export PGDATABASE=postgres";
    let load = || {
        let psql = format!("psql -X -q -At -v ON_ERROR_STOP=1 {client}");
        shell(
            joined,
            Side::A,
            &format!(
                "{database}; until pg_isready -q {client}; do :; done\n\
                 {psql} -c \"create table given as select i, md5(i::text) m from generate_series(1, 60000) i\"\n\
                 {psql} -c 'create table taken (like given)'\n\
                 copy={scratch}/copied\n\
                 {psql} -c 'copy given to stdout' >$copy\n\
                 {psql} -c 'copy taken from stdin' <$copy\n\
                 differ=$({psql} -c '(table given except table taken) union all (table taken except table given)' | wc -l)\n\
                 test \"$differ\" = 0 && test \"$({psql} -c 'select count(*) from taken')\" = 60000\n\
                 pgbench {client} -i -q -s 10 >/dev/null 2>&1",
                scratch = joined.lab.scratch().display(),
            ),
        )?;
        let mut all = Vec::new();
        for how in ["-c 50 -j 2", "-c 8 -j 2 -C"] {
            // A while for fifty connections to begin in.
            let time = (seconds / 2).max(3);
            let bench = format!("{database}; pgbench {client} -n {how} -T {time}");
            let done = transactions(&shell(joined, Side::A, &bench)?.output)?;
            all.push(format!("{done} ({how})"));
        }
        Ok(all.join(", ") + " transactions")
    };
    let outcome = beside(&server, load());
    server.signal(Signal::INT);
    server.wait(PATIENCE)?;
    outcome
}

const POOL: u16 = 6432;

/// A pool of connections to it, which passes those of its clients to the next process of its kind while they
/// are used.
pub(super) fn pgbouncer(joined: &Joined, seconds: u32) -> Result<String> {
    let server = started(joined)?;
    let own = directory(joined, "pgbouncer", "postgres")?;
    let shown = own.display();
    let settings = format!(
        "[databases]\npostgres = host={SERVER} port={PORT} user=postgres\n\
         [pgbouncer]\nlisten_addr = {SERVER}\nlisten_port = {POOL}\nauth_type = any\n\
         unix_socket_dir = {shown}\npool_mode = transaction\ndefault_pool_size = 10\n\
         suspend_timeout = 60\nadmin_users = postgres\nlogfile = {shown}/log\npidfile = {shown}/pid\n"
    );
    fs::write(own.join("ini"), settings).explain("cannot write a file", "make room in TMPDIR")?;
    let pool = |how: &str| Task::words(&format!("{AS_OWNER} pgbouncer {how} {shown}/ini"));
    let first = joined.serve_accelerated(pool("-q"), POOL);
    let client = format!("-h {SERVER} -p {POOL} -U postgres");
    let load = || {
        let database = "export PGDATABASE=postgres";
        shell(
            joined,
            Side::A,
            &format!(
                "{database}; until pg_isready -q {client}; do :; done\n\
                 pgbench {client} -i -q -s 5 >/dev/null 2>&1"
            ),
        )?;
        let time = seconds.max(4);
        let bench = format!("{database}; pgbench {client} -n -c 20 -j 2 -T {time}");
        let bench = Task::new("bash").args(["-euo", "pipefail", "-c", &bench]);
        let accepts = joined.counter("accepts");
        let bench = joined.lab.start(Side::A, bench)?;
        until("twenty connections", || joined.counter("accepts") >= accepts + 20)?;
        let next = joined.lab.start(Side::B, joined.accelerated(pool("-q -R")))?;
        let said = bench.wait(PATIENCE * 2).and_then(lab::Finished::success);
        let done = beside(&next, said.and_then(|said| transactions(&said.output)))?;
        let each = format!("{database}; pgbench {client} -n -c 8 -j 2 -C -T {time}");
        let each = transactions(&shell(joined, Side::A, &each)?.output)?;
        next.signal(Signal::INT);
        next.wait(PATIENCE)?;
        Ok(format!("{done} (-c 20, passed on meanwhile), {each} (-c 8 -C) transactions"))
    };
    let outcome = beside(&first, load());
    first.stop();
    server.signal(Signal::INT);
    server.wait(PATIENCE)?;
    outcome
}
