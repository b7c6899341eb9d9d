//! Settings in the environment: the engine's socket and the job's key.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::{AttachError, Session};

/// Variable for the engine's socket, as for all programs.
const SOCKET: &str = "OUTBOARD_SOCKET";
/// Variable for the job's key: 32 hexadecimal digits, without separators.
const KEY: &str = "FI_OUTBOARD_KEY";
/// Variable for the key that Open MPI generates for each job.
const OPEN_MPI_KEY: &str = "OMPI_MCA_orte_precondition_transports";
/// Control socket of the system's engine.
const SYSTEM_SOCKET: &str = "/run/outboard/engine.sock";

/// The engine's socket: `$OUTBOARD_SOCKET`, the system's engine if it exists, otherwise the user's.
fn socket() -> PathBuf {
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = named(SOCKET) {
        return path.into();
    }
    match named("XDG_RUNTIME_DIR") {
        Some(directory) if !Path::new(SYSTEM_SOCKET).exists() => {
            PathBuf::from(directory).join("outboard/engine.sock")
        }
        _ => SYSTEM_SOCKET.into(),
    }
}

/// A session for messages with the engine.
///
/// # Errors
/// If no engine answers, or it has no messages.
pub fn attach() -> Result<Arc<Session>, AttachError> {
    let program = std::env::args_os().next().map(PathBuf::from);
    let name = program.as_deref().and_then(Path::file_name);
    let name = name.map_or("program".into(), |name| name.to_string_lossy());
    Session::attach_messages(&socket(), &name)
}

/// The job's key from the environment, if there is one.
///
/// # Errors
/// A sentence if a variable does not contain a key.
pub fn key() -> Result<Option<[u8; 16]>, String> {
    for name in [KEY, OPEN_MPI_KEY] {
        let Some(text) = std::env::var(name).ok().filter(|text| !text.is_empty()) else { continue };
        return match parse_key(&text) {
            Some(key) => Ok(Some(key)),
            None => Err(format!("{name} is not a key: write 32 hexadecimal digits")),
        };
    }
    Ok(None)
}

/// A key of 32 hexadecimal digits; hyphens and colons between them are ignored.
fn parse_key(text: &str) -> Option<[u8; 16]> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .filter(|one| !matches!(one, '-' | ':'))
        .map(|one| one.to_digit(16).map(|digit| digit as u8))
        .collect();
    let digits: [u8; 32] = digits?.try_into().ok()?;
    let mut key = [0; 16];
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_an_open_mpi_job_is_read() {
        let key = parse_key("00112233445566aa-8899aabbccddeeff").expect("a key");
        assert_eq!(key[..2], [0, 0x11]);
        assert_eq!(key[7..9], [0xaa, 0x88]);
        assert_eq!(key[15], 0xff);
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "secret", "0011", "00112233445566aa-8899aabbccddeeff0"] {
            assert_eq!(parse_key(text), None, "{text}");
        }
    }
}
