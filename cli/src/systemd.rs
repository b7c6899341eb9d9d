//! Telling a service manager how the engine is (sd_notify(3)): one datagram.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends `state`, e.g. `READY=1`, to the service manager that started us, if one did.
pub fn notify(state: &str) {
    if let Some(path) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(error) = send(&path, state)
    {
        tracing::warn!(
            "cannot notify the service manager of {state} ({error}); it may assume that the engine \
             hangs"
        );
    }
}

fn send(path: &OsStr, state: &str) -> std::io::Result<()> {
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_manager_hears_at_a_path_and_at_an_abstract_name() {
        let name = format!("outboard-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let at_name = SocketAddr::from_abstract_name(&name).expect("a name");
        for (manager, told) in [
            (UnixDatagram::bind(&path), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&at_name), format!("@{name}").into()),
        ] {
            let manager = manager.expect("a socket");
            send(&told, "READY=1\nSTATUS=well").expect("sent");
            let mut heard = [0; 64];
            let len = manager.recv(&mut heard).expect("heard");
            assert_eq!(&heard[..len], b"READY=1\nSTATUS=well");
        }
        std::fs::remove_file(&path).expect("removed");
        assert!(send(path.as_os_str(), "READY=1").is_err(), "nobody listens");
    }
}
