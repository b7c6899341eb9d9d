//! Servers with a process for each connection, and servers some of whose processes are not accelerated.

use std::fs;
use std::path::PathBuf;

use lab::{Side, Task, listens, nginx};
use outboard_tests::joined::{Joined, PATIENCE, SERVER, eventually};
use outboard_tests::turn;

/// Runs `ab` with 100 connections that are kept; every request must succeed.
fn ab(joined: &Joined, url: &str, requests: u32) {
    let task = Task::words(&format!("ab -q -k -c 100 -s 60 -n {requests} {url}"));
    let finished = joined.lab.start(Side::A, task).and_then(|one| one.wait(PATIENCE * 2));
    let finished = finished.expect("ab ends");
    let said = format!("{}{}", finished.output, finished.errors);
    let field = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name));
        line.map(|rest| rest.trim().to_owned()).unwrap_or_default()
    };
    assert_eq!(field("Complete requests:"), requests.to_string(), "{said}");
    assert_eq!(field("Failed requests:"), "0", "{said}");
    assert!(!said.contains("Non-2xx"), "{said}");
}

/// A directory in the scratch directory that everybody may use.
fn directory(joined: &Joined, name: &str) -> PathBuf {
    let path = joined.lab.scratch().join(name);
    fs::create_dir_all(&path).expect("a directory");
    path
}

/// A connection is served by one child from its beginning to its end, and there are as many children
/// as connections: each must find one that waits for it.
#[test]
fn apache_with_a_hundred_children_serves_a_hundred_connections() {
    let name = "apache_with_a_hundred_children_serves_a_hundred_connections";
    let Some(_turn) = turn(name) else { return };
    let joined = Joined::start();
    let own = directory(&joined, "apache");
    let shown = own.display();
    fs::write(own.join("index.html"), "x".repeat(612)).expect("a page");
    let modules = ["mpm_prefork", "authz_core", "dir"]
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .concat();
    let settings = format!(
        "ServerName test\nServerRoot {shown}\nDefaultRuntimeDir {shown}\nPidFile {shown}/pid\n\
         ErrorLog {shown}/error.log\n{modules}Listen {SERVER}:8080\nDocumentRoot {shown}\n\
         User www-data\nGroup www-data\nStartServers 100\nMinSpareServers 100\nMaxSpareServers 100\n\
         ServerLimit 100\nMaxRequestWorkers 100\nMaxKeepAliveRequests 0\nKeepAliveTimeout 60\n\
         <Directory {shown}>\nRequire all granted\n</Directory>\n"
    );
    fs::write(own.join("apache.conf"), settings).expect("a file");
    let task = Task::words("apache2 -D FOREGROUND -f").arg(own.join("apache.conf"));
    let _apache = joined.serve_accelerated(task, 8080);
    eventually("a session for each child", || joined.counter("sessions") >= 100);
    ab(&joined, &format!("http://{SERVER}:8080/index.html"), 3000);
    assert!(joined.counter("accepts") >= 90, "{} accepts", joined.counter("accepts"));
    assert_eq!(joined.counter("sessions_refused"), 0);
}

/// php-fpm, whose name has the version of the distribution's PHP.
fn php_fpm() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(["/usr/sbin".into()])
        .flat_map(|directory| fs::read_dir(directory).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .find(|one| {
            one.file_name().is_some_and(|name| name.to_string_lossy().starts_with("php-fpm"))
        });
    found.expect("php-fpm, which scripts/setup installs")
}

/// The same over FastCGI, where nginx on the other host is the client.
#[test]
fn php_with_fifty_children_answers_nginx() {
    let Some(_turn) = turn("php_with_fifty_children_answers_nginx") else { return };
    let joined = Joined::start();
    let own = directory(&joined, "php");
    let shown = own.display();
    fs::write(own.join("index.php"), "<?php echo 'answer';").expect("a page");
    let settings = format!(
        "[global]\npid = {shown}/pid\nerror_log = {shown}/error.log\ndaemonize = no\n\
         [own]\nuser = root\ngroup = root\nlisten = {SERVER}:9000\npm = static\n\
         pm.max_children = 50\n"
    );
    fs::write(own.join("php.conf"), settings).expect("a file");
    let php = Task::new(php_fpm()).args(["-R", "-F", "-y"]).arg(own.join("php.conf"));
    let _php = joined.serve_accelerated(php, 9000);
    let configuration = nginx::configure("127.0.0.1", 8080, joined.lab.scratch()).expect("a file");
    let text = fs::read_to_string(&configuration).expect("the file");
    let passes = format!(
        "location / {{ fastcgi_pass {SERVER}:9000; fastcgi_param SCRIPT_FILENAME \
         {shown}/index.php; fastcgi_param REQUEST_METHOD GET; }} }}\n}}\n"
    );
    fs::write(&configuration, text.trim_end().trim_end_matches("}\n}").to_owned() + &passes)
        .expect("the file");
    let nginx = Task::new("nginx").arg("-c").arg(&configuration);
    let _nginx = joined.start_ready(Side::A, nginx, |one| listens(one.pid(), 8080));
    eventually("a session for each child", || joined.counter("sessions") >= 50);
    ab(&joined, "http://127.0.0.1:8080/", 1500);
    assert!(joined.counter("accepts") >= 1400, "{} accepts", joined.counter("accepts"));
}

/// The master is accelerated and only listens; its workers are not, for the reason in `settings`. Returns
/// the engine's hosts.
fn nginx_with_workers_of_the_kernel(settings: &str) -> Joined {
    let mut joined = Joined::without_engine();
    joined.restart_engine_with(settings);
    let configuration = nginx::configure(SERVER, 8080, joined.lab.scratch()).expect("a file");
    let text = fs::read_to_string(&configuration).expect("the file");
    let text = text.replace("user root;", "user www-data;");
    fs::write(&configuration, text.replace("worker_processes 1;", "worker_processes 2;"))
        .expect("the file");
    let task = Task::new("nginx").arg("-c").arg(&configuration);
    let nginx = joined.serve_accelerated(task, 8080);
    eventually("the kernel has it", || joined.counter("listeners_left") > 0);
    ab(&joined, &format!("http://{SERVER}:8080/index.html"), 3000);
    assert_eq!(joined.counter("accepts"), 0, "{}", nginx.errors());
    joined
}

#[test]
fn nginx_whose_workers_are_denied_serves_through_the_kernel() {
    let name = "nginx_whose_workers_are_denied_serves_through_the_kernel";
    let Some(_turn) = turn(name) else { return };
    let joined = nginx_with_workers_of_the_kernel("[deny]\nusers = [\"www-data\"]\n");
    assert!(joined.counter("left_users") > 0);
}

#[test]
fn nginx_whose_workers_may_not_open_the_control_socket_serves_through_the_kernel() {
    let name = "nginx_whose_workers_may_not_open_the_control_socket_serves_through_the_kernel";
    let Some(_turn) = turn(name) else { return };
    let joined = nginx_with_workers_of_the_kernel("socket_mode = 0o600\n");
    assert_eq!(joined.counter("left_users"), 0, "nobody of them was heard");
}
