//! OpenSSH: the server forks, becomes itself anew and serves from a child in a sandbox; the client may go to
//! the background with its connection.

use std::fs;

use lab::failure::{Explain, Result};
use lab::{Side, Task, listens};

use super::{beside, directory, file_of, repeated, shell};
use crate::joined::{CLIENT, Joined, SERVER};

const PORT: u16 = 7022;

/// The distribution's settings, with a port, keys and address of its own.
fn sshd_task(joined: &Joined, address: &str) -> Result<(Task, String)> {
    let own = directory(joined, "ssh", "root")?;
    let shown = own.display();
    shell(
        joined,
        Side::B,
        &format!(
            "mkdir -p /run/sshd\n\
             for key in host user; do ssh-keygen -q -t ed25519 -N '' -f {shown}/$key; done"
        ),
    )?;
    let settings = fs::read_to_string("/etc/ssh/sshd_config")
        .explain("cannot read sshd's settings", "run scripts/setup programs")?;
    let own_settings = format!(
        "Port {PORT}\nListenAddress {address}\nHostKey {shown}/host\n\
         AuthorizedKeysFile {shown}/user.pub\nPidFile none\nStrictModes no\n\
         PermitRootLogin prohibit-password\nMaxStartups 100\n"
    );
    // The first setting of a name counts.
    fs::write(own.join("config"), own_settings + &settings)
        .explain("cannot write a file", "make room in TMPDIR")?;
    let task = Task::words(&format!("/usr/sbin/sshd -D -e -f {shown}/config"));
    let options = format!(
        "-F none -i {shown}/user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
         -o LogLevel=ERROR -o BatchMode=yes"
    );
    Ok((task, options))
}

/// Files by scp both ways, and short logins.
pub(super) fn sshd(joined: &Joined, seconds: u32) -> Result<String> {
    let (task, options) = sshd_task(joined, SERVER)?;
    let server = joined.serve_accelerated(task, PORT);
    let file = file_of(joined, "scp.bytes", 3 << 20)?;
    let (shown, at) = (file.display(), format!("root@{SERVER}"));
    let rounds = repeated(seconds, || {
        shell(
            joined,
            Side::A,
            &format!(
                "rm -f {shown}.there {shown}.back\n\
                 scp {options} -P {PORT} {shown} {at}:{shown}.there\n\
                 scp {options} -P {PORT} {at}:{shown}.there {shown}.back\n\
                 cmp {shown} {shown}.there; cmp {shown} {shown}.back\n\
                 for turn in 1 2 3; do\n\
                 test \"$(ssh -n {options} -p {PORT} {at} echo $turn)\" = $turn\n\
                 done"
            ),
        )
        .map(drop)
    });
    let rounds = beside(&server, rounds);
    server.stop();
    Ok(format!("{} files and {} logins", rounds.clone()? * 2, rounds? * 3))
}

/// A client that goes to the background once it is let in, and forwards a port from there.
pub(super) fn ssh_background(joined: &Joined, seconds: u32) -> Result<String> {
    let (task, options) = sshd_task(joined, CLIENT)?;
    let server = joined.start_ready(Side::A, task, |one| listens(one.pid(), PORT));
    let file = file_of(joined, "background.bytes", 1 << 20)?;
    let shown = file.display();
    let run =
        format!("{} run --socket {} --", joined.executable.display(), joined.socket.display());
    let rounds = repeated(seconds, || {
        shell(
            joined,
            Side::B,
            &format!(
                "rm -f {shown}.back {shown}.done\n\
                 {run} ssh -n -f {options} -p {PORT} root@{CLIENT} \
                 'cat {shown} && until test -e {shown}.left; do sleep 0.01; done; echo end' >{shown}.back\n\
                 touch {shown}.left\n\
                 until test \"$(tail -c 4 {shown}.back)\" = end; do sleep 0.01; done\n\
                 rm {shown}.left\n\
                 head -c -4 {shown}.back | cmp - {shown}"
            ),
        )
        .map(drop)
    });
    let rounds = beside(&server, rounds);
    server.stop();
    Ok(format!("{} logins that went to the background", rounds?))
}
