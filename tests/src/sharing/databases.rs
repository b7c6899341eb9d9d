//! PostgreSQL: its postmaster accepts, and a child serves.

use std::fs;
use std::path::PathBuf;

use lab::failure::{Explain, Failure, Result};
use lab::{Side, Task};
use rustix::process::Signal;

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

/// pgbench with 50 connections, then with a connection for each transaction; a table goes out and in.
pub(super) fn postgresql(joined: &Joined, seconds: u32) -> Result<String> {
    let (bin, data) = (binaries()?, directory(joined, "postgres", "postgres")?);
    let (bin, shown) = (bin.display(), data.display());
    let as_owner = "setpriv --reuid postgres --regid postgres --clear-groups";
    shell(
        joined,
        Side::B,
        &format!(
            "{as_owner} {bin}/initdb -D {shown}/data -A trust --no-sync --no-locale -E UTF8 >/dev/null\n\
             echo 'host all all 0.0.0.0/0 trust' >>{shown}/data/pg_hba.conf"
        ),
    )?;
    let server = Task::words(&format!(
        "{as_owner} {bin}/postgres -D {shown}/data -p {PORT} -c listen_addresses={SERVER} \
         -c unix_socket_directories={shown} -c max_connections=200 -c fsync=off"
    ));
    let server = joined.serve_accelerated(server, PORT);
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
        let mut transactions = Vec::new();
        for how in ["-c 50 -j 2", "-c 8 -j 2 -C"] {
            // A while for fifty connections to begin in.
            let time = (seconds / 2).max(3);
            let said = shell(
                joined,
                Side::A,
                &format!("{database}; pgbench {client} -n {how} -T {time}"),
            )?
            .output;
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
            transactions.push(format!("{done} ({how})"));
        }
        Ok(transactions.join(", ") + " transactions")
    };
    let outcome = beside(&server, load());
    server.signal(Signal::INT);
    server.wait(PATIENCE)?;
    outcome
}
