//! The LD_PRELOAD library: the C library's socket calls in, `client::sockets` out.
//!
//! Each exported function checks whether the socket layer tracks the descriptor. If not (one table
//! lookup), the call goes to the real function unmodified. If so, C's arguments are converted to
//! Rust's, the socket layer handles the call, and its result is converted to a return value and
//! errno.
//!
//! Not done here: socket semantics (crates/client/src/sockets). Not caught: calls that glibc makes
//! internally (stdio on a socket, getaddrinfo's own sockets) and inline system calls. Start reading
//! at `boundary.rs`; system calls by number are in `calls/syscall.rs`.
//!
//! Rules: real functions are resolved once by `dlsym(RTLD_NEXT)`; nothing here calls an interposed
//! function by its C name; before the constructor has run nothing allocates and every call goes to
//! the kernel; a panic never crosses into C; a cancelled thread ends only outside the layer
//! (`boundary.rs`).
#![deny(clippy::undocumented_unsafe_blocks)]

mod addresses;
mod boundary;
mod calls;
mod kernel;
mod memory;
mod real;
mod report;

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use client::sockets::{Config, Sockets};

/// Set once by the constructor when the environment names an engine socket.
static SOCKETS: OnceLock<Sockets> = OnceLock::new();

static PASSES_IO_URING: AtomicBool = AtomicBool::new(false);

/// The socket layer, if this process is accelerated and the constructor has run.
#[inline]
fn sockets() -> Option<&'static Sockets> {
    SOCKETS.get()
}

/// Runs when the library is loaded, after the C library is ready.
extern "C" fn start() {
    real::resolve_all();
    calls::programs::lists::resolve_all();
    let outcome = std::panic::catch_unwind(|| {
        let Some(path) = std::env::var_os("OUTBOARD_SOCKET") else { return };
        if path.is_empty() {
            return;
        }
        let socket = absolute(path.into());
        calls::programs::again::note();
        let config = Config {
            socket,
            program: program_name(),
            spin_ns: std::env::var("OUTBOARD_SPIN_US")
                .ok()
                .and_then(|text| text.parse::<u64>().ok())
                .map_or(Config::SPIN_NS, |us| us.saturating_mul(1000)),
            quiet: std::env::var("OUTBOARD_LOG").is_ok_and(|level| level == "off"),
            report: report::prepare().map(|reporter| reporter.fd),
        };
        let passes = std::env::var("OUTBOARD_IO_URING").is_ok_and(|choice| choice == "pass");
        PASSES_IO_URING.store(passes, Ordering::Relaxed);
        client::memory::ask_by(memory::can_be_used);
        let sockets = Sockets::new(config, &kernel::Raw);
        if report::is_asked_for() {
            sockets.count_passed(report::PASSED_NUMBERS);
        }
        let _ = SOCKETS.set(sockets);
        if let Some(sockets) = crate::sockets() {
            sockets.follow_inherited();
        }
        // SAFETY: registers plain functions that live as long as the process.
        unsafe {
            libc::pthread_atfork(
                Some(before_fork),
                Some(after_fork_in_parent),
                Some(after_fork_in_child),
            )
        };
    });
    if outcome.is_err() {
        kernel::log_line("outboard: the library failed to start; all sockets use the kernel");
    }
}

/// A path that remains valid when the program, or one that it starts, changes its directory.
fn absolute(path: PathBuf) -> PathBuf {
    if path.is_absolute() {
        return path;
    }
    let Ok(absolute) = std::path::absolute(&path) else { return path };
    // SAFETY: the process has one thread as yet.
    unsafe { std::env::set_var("OUTBOARD_SOCKET", &absolute) };
    absolute
}

/// The program's name for `outboard ss`.
fn program_name() -> String {
    std::env::args_os()
        .next()
        .and_then(|name| {
            let path = std::path::PathBuf::from(name);
            path.file_name().map(|name| name.to_string_lossy().into_owned())
        })
        .unwrap_or_else(|| "program".into())
}

/// Makes the socket layer prepare what a child inherits.
extern "C" fn before_fork() {
    if let Some(sockets) = sockets() {
        let saved = boundary::errno();
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            sockets.forking();
            sockets.bequeath();
        }));
        boundary::set_errno(saved);
    }
}

/// Notifies the socket layer of a child.
extern "C" fn after_fork_in_parent() {
    if let Some(sockets) = sockets() {
        sockets.has_forked();
    }
}

/// Whether rings of io_uring are left to the program (OUTBOARD_IO_URING=pass).
fn passes_io_uring() -> bool {
    PASSES_IO_URING.load(Ordering::Relaxed)
}

/// Notifies the socket layer that this is a child: what it inherited belongs to the parent.
extern "C" fn after_fork_in_child() {
    if let Some(sockets) = sockets() {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sockets.forked()));
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
