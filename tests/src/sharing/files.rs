//! File servers that fork: rsync and vsftpd, and rsync as a client, two of whose processes use one connection
//! at once.

use std::fs;

use lab::failure::{Explain, Result};
use lab::{Program, Side, Task, listens};

use super::{beside, directory, file_of, repeated, shell};
use crate::joined::{CLIENT, Joined, SERVER};

const RSYNC: u16 = 7873;
const FTP: u16 = 7021;

/// A daemon that changes its root and its user, as is its default.
fn rsync_task(joined: &Joined, address: &str) -> Result<Task> {
    let own = directory(joined, "rsync", "nobody")?;
    let shown = own.display();
    let settings = format!(
        "address = {address}\nport = {RSYNC}\npid file = {shown}/pid\nlog file = {shown}/log\n\
         [files]\npath = {shown}/files\nread only = no\n"
    );
    fs::write(own.join("conf"), settings).explain("cannot write a file", "make room in TMPDIR")?;
    shell(joined, Side::B, &format!("install -d -m 755 -o nobody {shown}/files"))?;
    Ok(Task::words(&format!("rsync --daemon --no-detach --config={shown}/conf")))
}

/// A tree of files goes to the daemon and comes back, round after round. `under` runs the client.
fn rsync_rounds(
    joined: &Joined,
    side: Side,
    server: &Program,
    [address, under]: [&str; 2],
    seconds: u32,
) -> Result<u32> {
    let file = file_of(joined, "rsync.bytes", 3 << 20)?;
    let tree = joined.lab.scratch().join("tree");
    let (file, tree) = (file.display(), tree.display());
    let url = format!("rsync://{address}:{RSYNC}/files");
    beside(
        server,
        repeated(seconds, || {
            shell(
                joined,
                side,
                &format!(
                    "rm -rf {tree} {tree}.back; mkdir {tree}\n\
                     split -b 40k {file} {tree}/part.; cp {file} {tree}/whole\n\
                     {under} rsync -a --delete {tree}/ {url}/\n\
                     {under} rsync -a {url}/ {tree}.back/\n\
                     diff -r {tree} {tree}.back\n\
                     echo more >>{tree}/whole\n\
                     {under} rsync -ac --no-whole-file {tree}/ {url}/\n\
                     {under} rsync -ac --no-whole-file {url}/ {tree}.back/\n\
                     diff -r {tree} {tree}.back"
                ),
            )
            .map(drop)
        }),
    )
}

/// The daemon, which forks for each connection.
pub(super) fn rsync_daemon(joined: &Joined, seconds: u32) -> Result<String> {
    let server = joined.serve_accelerated(rsync_task(joined, SERVER)?, RSYNC);
    let rounds = rsync_rounds(joined, Side::A, &server, [SERVER, ""], seconds);
    server.stop();
    Ok(format!("{} trees of 80 files", rounds? * 4))
}

/// The client, which forks while it uses its connection.
pub(super) fn rsync_client(joined: &Joined, seconds: u32) -> Result<String> {
    let task = rsync_task(joined, CLIENT)?;
    let server = joined.start_ready(Side::A, task, |one| listens(one.pid(), RSYNC));
    let run =
        format!("{} run --socket {} --", joined.executable.display(), joined.socket.display());
    let rounds = rsync_rounds(joined, Side::B, &server, [CLIENT, &run], seconds);
    server.stop();
    Ok(format!("{} trees of 80 files", rounds? * 4))
}

/// A server whose children change their root and may open nothing.
pub(super) fn vsftpd(joined: &Joined, seconds: u32) -> Result<String> {
    let own = directory(joined, "ftp", "root")?;
    let shown = own.display();
    let settings = format!(
        "listen=YES\nlisten_ipv6=NO\nlisten_address={SERVER}\nlisten_port={FTP}\nbackground=NO\n\
         anonymous_enable=YES\nlocal_enable=YES\nwrite_enable=YES\nanon_upload_enable=YES\n\
         anon_root={shown}/files\nanon_umask=022\n\
         secure_chroot_dir=/run/vsftpd/empty\nxferlog_enable=NO\n"
    );
    fs::write(own.join("conf"), settings).explain("cannot write a file", "make room in TMPDIR")?;
    let file = file_of(joined, "ftp.bytes", 3 << 20)?;
    let file = file.display();
    shell(
        joined,
        Side::B,
        &format!(
            "mkdir -p /run/vsftpd/empty\n\
             install -d -m 755 {shown}/files; install -d -m 777 -o ftp {shown}/files/in\n\
             install -m 644 {file} {shown}/files/given"
        ),
    )?;
    let server = joined.serve_accelerated(Task::words(&format!("vsftpd {shown}/conf")), FTP);
    let url = format!("ftp://{SERVER}:{FTP}");
    let rounds = beside(
        &server,
        repeated(seconds, || {
            shell(
                joined,
                Side::A,
                &format!(
                    "curl -sS {url}/ | grep -q given\n\
                     curl -sS {url}/given | cmp - {file}\n\
                     curl -sS -P - {url}/given | cmp - {file}\n\
                     rm -f {shown}/files/in/taken\n\
                     curl -sS -T {file} {url}/in/taken\n\
                     cmp {file} {shown}/files/in/taken"
                ),
            )
            .map(drop)
        }),
    );
    server.stop();
    Ok(format!("{} files and as many listings", rounds? * 3))
}
