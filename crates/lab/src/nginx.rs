//! nginx as measurements and tests run it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{Explain, Result};

/// Size of the file that nginx serves, in bytes (that of Debian's index.html).
const SMALL_FILE_BYTES: usize = 612;

/// nginx ends a transfer that does not go on for a minute, as on a machine that stands still so
/// long (stopped, suspended, busy with others); what is measured and tested here is the network.
const NGINX_PATIENCE: &str = "  send_timeout 10m;\n  client_header_timeout 10m;\n";

/// Writes an nginx configuration and the file it serves; returns the configuration's path.
pub fn configure(address: &str, port: u16, scratch: &Path) -> Result<PathBuf> {
    let directory = scratch.join("nginx");
    let advice = "make room in TMPDIR";
    let shown = directory.display();
    fs::create_dir_all(&directory).explain(format!("cannot create {shown}"), advice)?;
    let page = "x".repeat(SMALL_FILE_BYTES);
    fs::write(directory.join("index.html"), page)
        .explain(format!("cannot write to {shown}"), advice)?;
    let configuration = format!(
        "user root;\ndaemon off;\nworker_processes 1;\npid {shown}/nginx.pid;\n\
         error_log {shown}/error.log;\nevents {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n  keepalive_requests 1000000000;\n  sendfile on;\n\
         {NGINX_PATIENCE}\
         client_body_temp_path {shown}/body;\n  proxy_temp_path {shown}/proxy;\n\
         fastcgi_temp_path {shown}/fastcgi;\n  uwsgi_temp_path {shown}/uwsgi;\n\
         scgi_temp_path {shown}/scgi;\n\
         server {{ listen {address}:{port} backlog=4096; root {shown}; }}\n}}\n"
    );
    let path = directory.join("nginx.conf");
    fs::write(&path, configuration).explain(format!("cannot write to {shown}"), advice)?;
    Ok(path)
}
