//! Keeps the library loaded: libfabric closes its providers, but a session's memory and what the
//! client library holds for each thread stay until the process ends.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
