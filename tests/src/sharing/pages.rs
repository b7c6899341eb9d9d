//! A page that a host fetches from another all the time, while something happens to the server.

use std::fs;
use std::path::PathBuf;

use lab::Side;
use lab::failure::{Explain, Failure, Result};

use super::{file_of, repeated};
use crate::cases::last_line;
use crate::joined::{Joined, PATIENCE, SERVER};
use crate::world::scripted;

/// Size of a page: more than a segment and than most buffers of programs.
pub(super) const PAGE_BYTES: usize = 100_000;

/// The page as a file `name` in a directory of its own, which everybody may read.
pub(super) fn page(joined: &Joined, name: &str) -> Result<PathBuf> {
    let directory = joined.lab.scratch().join(format!("{name}.pages"));
    fs::create_dir_all(&directory).explain("cannot create a directory", "make room in TMPDIR")?;
    let path = directory.join("page");
    let made = file_of(joined, "page.bytes", PAGE_BYTES)?;
    fs::copy(made, &path).explain("cannot write a file", "make room in TMPDIR")?;
    Ok(path)
}

/// Fetches `url_path` at a port of the server's address, which is to be the content of `page`, for
/// some seconds, and meanwhile does `step` again and again; what was fetched.
pub(super) fn fetched(
    joined: &Joined,
    (port, url_path, page): (u16, &str, &PathBuf),
    seconds: u32,
    mut step: impl FnMut() -> Result<()>,
) -> Result<String> {
    let until = joined.lab.scratch().join("enough");
    let _ = fs::remove_file(&until);
    let client = scripted(&joined.lab, "pages.py").args([SERVER, &port.to_string(), url_path]);
    let client = joined.lab.start(Side::A, client.arg(page).arg(&until))?;
    let steps = repeated(seconds, || {
        // Not to take the core from those who serve.
        std::thread::sleep(std::time::Duration::from_millis(100));
        step()
    });
    fs::write(&until, "").explain("cannot write a file", "make room in TMPDIR")?;
    let finished = client.wait(PATIENCE * 2).and_then(lab::Finished::success);
    let said = finished.and_then(|finished| last_line(&finished))?;
    Ok(format!("{said}, {} steps", steps?))
}

/// Processes whose parent is `parent`.
pub(super) fn children(parent: i32) -> Vec<i32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut children: Vec<i32> =
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    children.sort_unstable();
    children
}

/// Waits until `condition`; `what` names it.
pub(super) fn until(what: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
    let begin = std::time::Instant::now();
    while !condition() {
        if begin.elapsed() > PATIENCE {
            return Err(Failure::new(format!("{what} did not happen"), ""));
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Ok(())
}
