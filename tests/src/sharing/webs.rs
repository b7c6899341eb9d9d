//! Web servers whose processes share listeners: through reloads and upgrades, too, which lose no connection.

use std::fs;
use std::path::{Path, PathBuf};

use lab::failure::{Explain, Failure, Result};
use lab::{Program, Side, Task, listens, nginx};
use rustix::process::{Pid, Signal, kill_process};

use super::pages::{children, fetched, page, until};
use super::{beside, directory, shell};
use crate::joined::{Joined, PATIENCE, SERVER};

const PORT: u16 = 7040;
/// Processes of a server.
const WORKERS: usize = 4;

fn write(path: &Path, text: String) -> Result<()> {
    fs::write(path, text).explain("cannot write a file", "make room in TMPDIR")
}

fn number_in(path: &Path) -> Option<i32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn signal(process: i32, signal: Signal) -> Result<()> {
    let process = Pid::from_raw(process);
    let process = process.ok_or_else(|| Failure::new("there is no such process", ""))?;
    kill_process(process, signal).explain("cannot signal a process", "see whether it has ended")
}

/// A server that has left the group of processes which its starter ends.
struct Daemon(PathBuf);

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(process) = number_in(&self.0) {
            for one in children(process).into_iter().chain([process]) {
                // Most often it has ended already.
                let _ = signal(one, Signal::KILL);
            }
        }
    }
}

/// By turns its workers are replaced, and the whole program by a fresh start of its file.
pub(super) fn nginx(joined: &Joined, seconds: u32) -> Result<String> {
    let page = page(joined, "nginx")?;
    let configuration = nginx::configure(SERVER, PORT, joined.lab.scratch())?;
    let own = joined.lab.scratch().join("nginx");
    let text = fs::read_to_string(&configuration).explain("no configuration", "report this")?;
    let root = page.parent().unwrap_or(&page).display();
    let text = text
        .replace("user root;", "user www-data;")
        // It takes no upgrade while the process that has started it is there.
        .replace("daemon off;", "daemon on;")
        .replace("worker_processes 1;", &format!("worker_processes {WORKERS};"))
        .replace(&format!("root {};", own.display()), &format!("root {root};"));
    write(&configuration, text)?;
    let (pid, old) = (own.join("nginx.pid"), own.join("nginx.pid.oldbin"));
    let _daemons = (Daemon(pid.clone()), Daemon(old.clone()));
    let server = Task::new("/usr/sbin/nginx").arg("-c").arg(&configuration);
    joined.lab.start(Side::B, joined.accelerated(server))?.wait(PATIENCE)?.success()?;
    until("acceleration", || joined.is_accelerated(PORT))?;
    let master = || number_in(&pid).unwrap_or_default();
    let mut turn = 0;
    let outcome = fetched(joined, (PORT, "/page", &page), seconds, || {
        let before = (master(), children(master()));
        turn += 1;
        if turn % 2 == 1 {
            signal(before.0, Signal::HUP)?;
            return until("a reload", || {
                let now = children(before.0);
                now.len() >= WORKERS && now.iter().all(|one| !before.1.contains(one))
            });
        }
        signal(before.0, Signal::USR2)?;
        until("an upgrade", || {
            old.exists() && master() != before.0 && children(master()).len() >= WORKERS
        })?;
        signal(before.0, Signal::QUIT)?;
        until("the end of the old program", || !old.exists())
    });
    signal(master(), Signal::QUIT)?;
    until("nginx's end", || !pid.exists())?;
    outcome
}

/// A proxy whose processes pass their listeners to those that replace them.
pub(super) fn haproxy(joined: &Joined, seconds: u32) -> Result<String> {
    let page = page(joined, "haproxy")?;
    let own = directory(joined, "haproxy", "root")?;
    let configuration = own.join("haproxy.cfg");
    write(
        &configuration,
        format!(
            "global\n  tune.bufsize 262144\n  user nobody\n  group nogroup\n  \
             stats socket {}/socket expose-fd listeners level admin\n\
             defaults\n  mode http\n  timeout connect 60s\n  timeout client 60s\n  timeout server 60s\n\
             frontend own\n  bind {SERVER}:{PORT}\n  http-request return status 200 \
             content-type application/octet-stream file {}\n",
            own.display(),
            page.display()
        ),
    )?;
    let task = Task::words("haproxy -W -f").arg(&configuration);
    let server =
        joined.start_ready(Side::B, joined.accelerated(task), |_| joined.is_accelerated(PORT));
    let reloads = || server.errors().matches("Loading success").count();
    until("its start", || reloads() > 0)?;
    let outcome = fetched(joined, (PORT, "/page", &page), seconds, || {
        let before = reloads();
        signal(server.pid(), Signal::USR2)?;
        until("a reload", || reloads() > before)
    });
    let outcome = beside(&server, outcome);
    server.stop();
    outcome
}

/// A process for each connection, as many as the distribution's settings do not dream of.
pub(super) fn apache(joined: &Joined, seconds: u32) -> Result<String> {
    let (page, own) = (page(joined, "apache")?, directory(joined, "apache", "root")?);
    let shown = own.display();
    let modules = ["mpm_prefork", "authz_core", "dir"]
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .concat();
    let root = page.parent().unwrap_or(&page).display();
    write(
        &own.join("apache.conf"),
        format!(
            "ServerName test\nServerRoot {shown}\nDefaultRuntimeDir {shown}\nPidFile {shown}/pid\n\
             ErrorLog {shown}/error.log\n{modules}Listen {SERVER}:{PORT}\nDocumentRoot {root}\n\
             User www-data\nGroup www-data\nStartServers 40\nMinSpareServers 40\nMaxSpareServers 60\n\
             ServerLimit 100\nMaxRequestWorkers 100\nMaxConnectionsPerChild 50\n\
             <Directory {root}>\nRequire all granted\n</Directory>\n"
        ),
    )?;
    let task = Task::words("apache2 -D FOREGROUND -f").arg(own.join("apache.conf"));
    let server = joined.serve_accelerated(task, PORT);
    let outcome = fetched(joined, (PORT, "/page", &page), seconds, || {
        // Its children finish what they are at.
        let before = children(server.pid());
        signal(server.pid(), Signal::USR1)?;
        until("a graceful restart", || {
            children(server.pid()).iter().filter(|one| !before.contains(one)).count() >= WORKERS
        })
    });
    let outcome = beside(&server, outcome);
    server.stop();
    outcome
}

/// PHP's processes behind an nginx of the other host.
pub(super) fn php_fpm(joined: &Joined, seconds: u32) -> Result<String> {
    let (page, own) = (page(joined, "php")?, directory(joined, "php", "root")?);
    let shown = own.display();
    write(&own.join("index.php"), format!("<?php readfile('{}');", page.display()))?;
    write(
        &own.join("php.conf"),
        format!(
            "[global]\npid = {shown}/pid\nerror_log = {shown}/error.log\ndaemonize = no\n\
             [own]\nuser = www-data\ngroup = www-data\nlisten = {SERVER}:{PORT}\npm = dynamic\n\
             pm.max_children = 50\npm.start_servers = 10\npm.min_spare_servers = 5\n\
             pm.max_spare_servers = 20\npm.max_requests = 50\n"
        ),
    )?;
    let program = shell(joined, Side::B, "ls /usr/sbin/php-fpm[0-9]* | tail -n 1")?.output;
    let task = Task::new(program.trim()).args(["-F", "-y"]).arg(own.join("php.conf"));
    let server = joined.serve_accelerated(task, PORT);
    let configuration = nginx::configure("127.0.0.1", 8080, joined.lab.scratch())?;
    let text = fs::read_to_string(&configuration).explain("no configuration", "report this")?;
    let passes = format!(
        "location / {{ fastcgi_pass {SERVER}:{PORT}; fastcgi_param SCRIPT_FILENAME {shown}/index.php; \
         fastcgi_param REQUEST_METHOD GET; }} }}\n}}\n"
    );
    write(&configuration, text.trim_end().trim_end_matches("}\n}").to_owned() + &passes)?;
    let before = Task::new("nginx").arg("-c").arg(&configuration);
    let before = joined.start_ready(Side::A, before, |one| listens(one.pid(), 8080));
    let outcome = pages_of_php(joined, &server, &page, seconds);
    before.stop();
    server.stop();
    outcome
}

fn pages_of_php(joined: &Joined, server: &Program, page: &Path, seconds: u32) -> Result<String> {
    let rounds = super::repeated(seconds, || {
        let fetch = format!(
            "for turn in 1 2 3 4 5 6 7 8; do\n\
             curl -sS http://127.0.0.1:8080/ | cmp - {} & pids[$turn]=$!\n\
             done\nfor pid in ${{pids[*]}}; do wait $pid; done",
            page.display()
        );
        shell(joined, Side::A, &fetch).map(drop)
    });
    Ok(format!("{} pages", beside(server, rounds)? * 8))
}

/// Python's, whose first process passes a listener to all by fork. It replaces them when it is told to.
pub(super) fn gunicorn(joined: &Joined, seconds: u32) -> Result<String> {
    let page = page(joined, "gunicorn")?;
    let app = crate::world::script(&joined.lab, "page_app.py");
    let task = Task::new("gunicorn").arg("--chdir").arg(app.parent().unwrap_or(&app));
    let task = task.args(["-w", &WORKERS.to_string(), "-b", &format!("{SERVER}:{PORT}")]);
    let task = task.arg("page_app:wsgi").env("PAGE", &page);
    let server = joined.serve_accelerated(task, PORT);
    let outcome = fetched(joined, (PORT, "/page", &page), seconds, || {
        let before = children(server.pid());
        signal(server.pid(), Signal::HUP)?;
        until("new workers", || {
            let now = children(server.pid());
            now.len() == WORKERS && now.iter().all(|one| !before.contains(one))
        })
    });
    let outcome = beside(&server, outcome);
    server.stop();
    outcome
}
