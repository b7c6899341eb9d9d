//! Servers that give each connection to a child: socat, inetd and Python's socketserver.

use std::fs;

use lab::failure::{Explain, Result};
use lab::{Program, Side, Task};

use super::{beside, file_of, repeated, shell};
use crate::joined::{Joined, SERVER};
use crate::world::PYTHON;

const PORT: u16 = 7030;

/// What a client sends comes back, from several connections at once.
pub(super) fn echo_rounds(
    joined: &Joined,
    server: &Program,
    ports: &[u16],
    seconds: u32,
) -> Result<u32> {
    let file = file_of(joined, "echo.bytes", 2 << 20)?;
    let file = file.display();
    let mut script = String::from("back=$(mktemp -d)\n");
    for port in ports {
        script += &format!(
            "for turn in 1 2 3; do nc -N {SERVER} {port} <{file} >$back/$turn & done\n\
             wait\n\
             for turn in 1 2 3; do cmp {file} $back/$turn; done\n"
        );
    }
    script += "rm -r $back";
    beside(server, repeated(seconds, || shell(joined, Side::A, &script).map(drop)))
}

/// One that copies in the child, and one whose child becomes another program.
pub(super) fn socat(joined: &Joined, seconds: u32) -> Result<String> {
    let listen = |port: u16| format!("TCP-LISTEN:{port},bind={SERVER},fork,reuseaddr");
    let started = |port: u16, to: &str| {
        joined.serve_accelerated(Task::new("socat").args([&*listen(port), to]), port)
    };
    let piped = started(PORT, "PIPE");
    let _execs = started(PORT + 1, "EXEC:cat");
    let _becomes = started(PORT + 2, "EXEC:cat,nofork");
    let rounds = echo_rounds(joined, &piped, &[PORT, PORT + 1, PORT + 2], seconds)?;
    Ok(format!("{} connections echoed", rounds * 9))
}

/// Its own echo, whose child serves, and a program that it starts.
pub(super) fn inetd(joined: &Joined, seconds: u32) -> Result<String> {
    let configuration = joined.lab.scratch().join("inetd.conf");
    let line = format!("{SERVER}:{PORT} stream tcp nowait.10000 root /bin/cat cat\n");
    fs::write(&configuration, line).explain("cannot write a file", "make room in TMPDIR")?;
    let inetd = Task::words("inetd -i -R 0").arg(&configuration);
    let server = joined.serve_accelerated(inetd, PORT);
    let rounds = echo_rounds(joined, &server, &[PORT], seconds)?;
    Ok(format!("{} connections echoed", rounds * 3))
}

/// A process for each connection.
pub(super) fn python(joined: &Joined, seconds: u32) -> Result<String> {
    let text = format!(
        "import shutil, socketserver\n\
         class Echo(socketserver.StreamRequestHandler):\n    \
         def handle(self): shutil.copyfileobj(self.rfile, self.wfile)\n\
         class Server(socketserver.ForkingTCPServer):\n    \
         allow_reuse_address = True\n    \
         request_queue_size = 64\n\
         Server(('{SERVER}', {PORT}), Echo).serve_forever()\n"
    );
    let server = joined.serve_accelerated(Task::new(PYTHON).arg("-c").arg(text), PORT);
    let rounds = echo_rounds(joined, &server, &[PORT], seconds)?;
    Ok(format!("{} connections echoed", rounds * 3))
}
